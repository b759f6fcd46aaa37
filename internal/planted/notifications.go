package main

// notifyBugs take a forged or late notification for a genuine one.
var notifyBugs = []bug{
	{"any RSA signature of a notification holds", "pkg/notify/rsa.go",
		"return rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], raw) == nil", "return rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], raw) != rsa.ErrDecryption", nil},
	{"any HMAC of a notification holds", "pkg/notify/hmac.go",
		"return hmac.Equal(mac.Sum(nil), signature)", "return len(signature) > 0", nil},
	{"only the first key of a notification counts", "pkg/notify/rsa.go",
		"slices.ContainsFunc(keys, func", "slices.ContainsFunc(keys[:1], func", nil},
	{"a notification holds for ever", "pkg/notify/notify.go",
		"away > Tolerance {", "false && away > 0 {", nil},
	{"a notification of the future holds", "pkg/notify/notify.go",
		"now.Sub(signed).Abs();", "now.Sub(signed);", nil},
	{"a notification may have a parameter twice", "pkg/notify/rsa.go",
		"		if len(values) != 1 {", "		if len(values) == 0 {", nil},
	{"the parameters of a notification are sorted with their values", "pkg/notify/rsa.go",
		"strings.Compare(nameOf(a), nameOf(b))", "strings.Compare(a, b)", nil},
	{"a notification without the stamp in its signature", "pkg/notify/hmac.go",
		"slices.Concat([]byte(stamp), []byte(\".\"), r.Body)", "r.Body", nil},
	{"the first signature of a notification counts alone", "pkg/notify/hmac.go",
		"slices.ContainsFunc(signatures, func", "slices.ContainsFunc(signatures[:1], func", nil},
	{"only the first item of a notification is verified", "pkg/notify/hmac.go",
		"		if err := v.verifyItem(item); err != nil {\n			return nil, err\n		}\n", "		return &Notice{hashed(r.Body), r}, v.verifyItem(item)\n", nil},
	{"the fields of a notification run into each other", "pkg/notify/hmac.go",
		"i != 3 && strings.Contains(f, \":\")", "false && i != 3 && strings.Contains(f, \":\")", nil},
	{"a member of a notification is there twice", "pkg/notify/hmac.go",
		"|| seen[strings.ToLower(name)] ||", "||", nil},
	{"a notification's resource of another key is taken", "pkg/notify/rsa.go",
		"		return nil, errUndecrypted\n", "", nil},
	{"paypal: the webhook of a notification is not signed", "pkg/notify/paypal.go",
		"[]string{id, sent, v.webhook, sum}", "[]string{id, sent, sum}", nil},
	{"paypal: the CRC-32 of a notification is in hexadecimal", "pkg/notify/paypal.go",
		"(crc32.ChecksumIEEE(r.Body)), 10)", "(crc32.ChecksumIEEE(r.Body)), 16)", nil},
	{"paypal: the body of a notification is not signed", "pkg/notify/paypal.go",
		"crc32.ChecksumIEEE(r.Body)", "crc32.ChecksumIEEE(r.Body[:min(len(r.Body), 16)])", nil},
	{"paypal: a notification of another algorithm holds", "pkg/notify/paypal.go",
		` || header(r, "Paypal-Auth-Algo") != paypalAlgorithm`, ` || header(r, "Paypal-Auth-Algo") == ""`, nil},
	{"a header of a notification is there twice", "pkg/notify/notify.go",
		"len(values) == 1 {", "len(values) > 0 {", nil},
	{"paypal: the signed fields run into each other", "pkg/notify/paypal.go",
		`strings.Contains(id, "|") ||`, `false && strings.Contains(id, "|") &&`, nil},
	{"paypal: a notification is known by its body", "pkg/notify/paypal.go",
		"&Notice{id, r}", "&Notice{hashed(r.Body), r}", nil},
	{"paypal: any webhook id is taken", "pkg/notify/paypal.go",
		"case !webhookID.MatchString(id):", "case len(id) > 50:", nil},
	{"paypal: the webhook id of another kind is taken", "pkg/notify/notify.go",
		`c.WebhookID != "" && c.Kind != "paypal"`, `false && c.Kind != "paypal"`, nil},
}

// notifiedBugs let a notification do too little for a call, or too much.
var notifiedBugs = []bug{
	{"a notification lets no query go", "pkg/scheduler/questions.go",
		"			case q.now <- struct{}{}:\n", "			case <-q.now:\n", notifiedTests},
	{"a notification queries calls of other numbers", "pkg/scheduler/questions.go",
		"seen[q] || contradicts(q.call.Numbers, numbers)", "seen[q]", notifiedTests},
	{"a notification uses up a query", "pkg/scheduler/resolver.go",
		"		if !early {", "		if true || !early {", notifiedTests},
	{"a notification after the last query finds no call", "pkg/scheduler/followup.go",
		"	for _, c := range idle {\n", "	for _, c := range idle[:0] {\n", notifiedTests},
	{"a notification during a query is lost", "pkg/scheduler/questions.go",
		"now: make(chan struct{}, 1)}", "now: make(chan struct{})}", meanwhile},
	{"a notification finds a call that is decided", "pkg/scheduler/control.go",
		"	s.followUps.questions.drop(id)\n", "", notifiedTests},
	{"a notification finds calls that nothing can query", "pkg/scheduler/followup.go",
		"	if r == nil {\n", "	if r == nil && c.Async {\n", notifiedTests},
	{"a notification leaves the calls of callers alone", "pkg/scheduler/followup.go",
		"		f.questions.part(c.Call)\n", "", []string{"-run", "TestNotifiedOfACaller"}},
	{"a notification overwrites the end of a call", "pkg/scheduler/followup.go",
		"	if c.State != Unknown {\n		f.questions.drop(c.ID)\n		return\n	}\n", "", notifiedTests},
}

var (
	notifiedTests = []string{"-run", "TestNotified"}
	meanwhile     = []string{"-run", "TestNotifiedMeanwhile"}
)

// bellBugs pass the wrong notifications on, or other bytes.
var bellBugs = []bug{
	{"a forged notification is passed on", "internal/server/notifications.go",
		"		n.refuse(w, unverified,", "		defer n.passOn(w, r, req)\n		n.refuse(w, unverified,", bellTests},
	{"a notification is passed on without its query", "internal/server/notifications.go",
		"Target: target(r), Header: upstream.EndToEnd(r.Header), Body: body}", "Target: r.URL.Path, Header: upstream.EndToEnd(r.Header), Body: body}", bellTests},
	{"a notification is passed on with one value of each header", "internal/server/notifications.go",
		"	notice, err := n.Verifier", "	for name, values := range req.Header {\n		req.Header[name] = values[:1]\n	}\n	notice, err := n.Verifier", bellTests},
	{"the merchant's answer to a notification is always 200", "internal/server/notifications.go",
		"	if err := forward(w, res.Response, nil)", "	res.Response.StatusCode = 200\n	if err := forward(w, res.Response, nil)", bellTests},
	{"a notification that the merchant did not get is done", "internal/server/refusal.go",
		"	noMerchant:             {http.StatusBadGateway,", "	noMerchant:             {http.StatusOK,", bellTests},
	{"a notification queries with each repeat", "internal/server/notifications.go",
		"|| n.asked.has(notice.ID) {", "{", bellTests},
	{"a notification before its call uses its query up", "internal/server/notifications.go",
		"calls > 0 {\n", "true {\n", bellTests},
	{"notifications have no bound", "internal/server/notifications.go",
		"n.places = make(chan struct{}, atOnce)", "n.places = make(chan struct{}, atOnce+1)", bellTests},
	{"forged notifications fill the log", "internal/server/notifications.go",
		"now.Sub(n.warned) < warnEvery {", "false {", bellTests},
	{"the ids of notifications are kept for ever", "internal/server/notifications.go",
		"		delete(m.ids, m.ring[m.next])\n", "", bellTests},
	{"a part of the merchant's answer to a notification is taken for all of it", "internal/server/notifications.go",
		"		panic(http.ErrAbortHandler) // the platform", "		return // the platform", bellTests},
}

var bellTests = []string{"-run", "TestNotif|TestRemembered", "-timeout", "40s"}
