package main

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// An acquirer is a platform in Alipay's shape whose payments have no clear answer, and which
// tells of them later. Its queries say that the buyer has yet to pay, until paid is set.
type acquirer struct {
	mu      sync.Mutex
	key     *rsa.PrivateKey
	paid    bool
	pays    int
	queries int
}

func (a *acquirer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch r.FormValue("method") {
	case "alipay.trade.pay":
		a.pays++
		fmt.Fprint(w, `{"alipay_trade_pay_response":{"code":"20000","sub_code":"ACQ.SYSTEM_ERROR"},"sign":"x"}`)
	case "alipay.trade.query":
		a.queries++
		status := "WAIT_BUYER_PAY"
		if a.paid {
			status = "TRADE_SUCCESS"
		}
		fmt.Fprintf(w, `{"alipay_trade_query_response":{"code":"10000","trade_status":%q,"total_amount":"1.00"},"sign":"x"}`, status)
	}
}

func (a *acquirer) settle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.paid = true
}

func (a *acquirer) counts() (pays, queries int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pays, a.queries
}

// notification is a notification of the platform about an order.
func (a *acquirer) notification(id, order string) string {
	v := url.Values{"notify_id": {id}, "out_trade_no": {order}, "trade_status": {"TRADE_SUCCESS"}, "total_amount": {"1.00"}, "subject": {"茶 confidential-subject"}, "passback_params": {""}}
	var text []string
	for name := range v {
		text = append(text, name)
	}
	slices.Sort(text)
	for i, name := range text {
		text[i] = name + "=" + v.Get(name)
	}
	sum := sha256.Sum256([]byte(strings.Join(text, "&")))
	signature, err := rsa.SignPKCS1v15(nil, a.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	v.Set("sign", base64.StdEncoding.EncodeToString(signature))
	v.Set("sign_type", "RSA2")
	return v.Encode()
}

// A merchant is the server to which notifications are passed on.
type merchant struct {
	mu   sync.Mutex
	got  []string // target, header and body of each notification
	hold chan struct{}
}

func (m *merchant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m.mu.Lock()
	m.got = append(m.got, seen(r.Method, r.RequestURI, r.Header, string(body)))
	hold := m.hold
	m.mu.Unlock()
	if hold != nil {
		<-hold
	}
	h := w.Header()
	h["X-Shop"], h["Content-Type"], h["Date"] = []string{"a", "b"}, []string{"text/plain;charset=GBK"}, nil
	w.WriteHeader(http.StatusAccepted)
	io.WriteString(w, "success\n")
}

// seen writes a request, without the headers of one connection and of Go's client.
func seen(method, target string, header http.Header, body string) string {
	h := header.Clone()
	for _, name := range []string{"Connection", "Content-Length", "Accept-Encoding", "User-Agent"} {
		h.Del(name)
	}
	return fmt.Sprint(method, " ", target, " ", h, " ", body)
}

func (m *merchant) notifications() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.got)
}

// bell is a sidecar with a platform and a merchant.
type bell struct {
	*process
	platform *acquirer
	merchant *merchant
	yaml     string
	shop     *httptest.Server
}

// newBell returns a bell with its merchant alone.
func newBell(t *testing.T) *bell {
	b := &bell{merchant: &merchant{}}
	b.shop = httptest.NewServer(b.merchant)
	t.Cleanup(b.shop.Close)
	return b
}

const endpointSecret = "whsec_of-the-endpoint"

func ring(t *testing.T) *bell {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, _ := x509.MarshalPKIXPublicKey(&key.PublicKey)
	public := filepath.Join(t.TempDir(), "alipay.pub")
	if err := os.WriteFile(public, []byte(base64.StdEncoding.EncodeToString(der)), 0o644); err != nil {
		t.Fatal(err)
	}
	b := newBell(t)
	b.platform = &acquirer{key: key}
	upstream := serve(t, b.platform)
	b.yaml = "log: {level: debug}\n" + oneUpstream(filepath.Join(t.TempDir(), "throttler.db"), "alipay", upstream, fmt.Sprintf(`
    preset: alipay
    signer: {kind: alipay, key: 'file:%s'}
    notifications:
      listen: 127.0.0.1:0
      forward: %s/shop
      verify: {kind: alipay, keys: ['file:%s']}
      concurrency: 4
    resolve:
      - when: 'param("method") == "alipay.trade.pay"'
        method: POST
        target: path
        headers: {content-type: '"application/x-www-form-urlencoded"'}
        body: 'urlencode({"app_id": param("app_id"), "method": "alipay.trade.query", "biz_content": param("biz_content")})'
        after: 10h
        every: 10h
        outcomes: [{when: 'body("*_response.trade_status") == "TRADE_SUCCESS"', is: done}]
  stripe:
    url: %s
    preset: stripe
    notifications: {listen: '127.0.0.1:0', path: /hook, forward: '%s', verify: {kind: stripe, keys: [env:WHSEC]}}
`, keyFile(t, gateway.NewKeys()), b.shop.URL, public, upstream, b.shop.URL))
	b.launch(t)
	return b
}

// launch runs the sidecar, with the secret in its environment.
func (b *bell) launch(t *testing.T) {
	t.Helper()
	b.process = launch(t, b.yaml, "env", "WHSEC="+endpointSecret)
}

// pay hands a payment over, and returns the call when its outcome is unknown.
func (b *bell) pay(t *testing.T, order string) (id string) {
	t.Helper()
	id = b.trade(t, "pay", "respond-async", order).call()
	b.waitUnknown(t, id)
	return id
}

// waitUnknown waits until a call is recorded as unknown: from then on a notification finds it.
func (b *bell) waitUnknown(t *testing.T, id string) {
	t.Helper()
	send(t, http.MethodGet, b.admin+"/v1/calls/"+id, "", "Prefer", "wait=30")
	if state := b.call(id).State; state != "unknown" {
		t.Fatalf("the payment is %s", state)
	}
}

// notify sends a notification as the platform does.
func (b *bell) notify(t *testing.T, of, target, body string, header ...string) answer {
	t.Helper()
	return send(t, http.MethodPost, b.url(t, "upstreams."+of+".notifications.listen")+target, body,
		append(header, "Content-Type", "application/x-www-form-urlencoded; charset=utf-8")...)
}

// counted returns a line of the metrics.
func (b *bell) counted(of, result string) string {
	for line := range strings.Lines(b.body("/metrics")) {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("throttler_notifications_total{result=%q,upstream=%q} ", result, of)); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// TestNotificationDecidesByTheQuery: a notification about an unknown call goes to the merchant
// byte for byte, and lets the query go at once, which alone decides. Forged ones do neither,
// and a repeat of one does not query again.
func TestNotificationDecidesByTheQuery(t *testing.T) {
	b := ring(t)
	id := b.pay(t, "order-one")

	genuine := b.platform.notification("N1", "order-one")
	forged := strings.Replace(genuine, "out_trade_no=order-one", "out_trade_no=order-two", 1)
	for i, body := range []string{forged, genuine + "&more=1", "sign=confidential-signature", ""} {
		if got := b.notify(t, "alipay", "/notify", body); got.status != http.StatusUnauthorized {
			t.Fatalf("forged notification %d: %+v", i, got)
		}
	}
	if _, queries := b.platform.counts(); queries != 0 || len(b.merchant.notifications()) != 0 || b.counted("alipay", "unverified") != "4" {
		t.Errorf("forged ones: %d queries, %q passed on, %s counted", queries, b.merchant.notifications(), b.counted("alipay", "unverified"))
	}

	// Genuine, but the query does not say that the order is paid: nothing is decided.
	got := b.notify(t, "alipay", "/notify/a%2Fb?tenant=7&x=%e8", genuine, "X-Trace", "one", "X-Trace", "two", "Authorization", "Basic confidential-password")
	if got.status != http.StatusAccepted || got.body != "success\n" || fmt.Sprint(got.header["X-Shop"], got.header["Content-Type"], got.header["Date"]) != "[a b] [text/plain;charset=GBK] []" || got.call() != "" {
		t.Errorf("the merchant's answer came as %+v", got)
	}
	want := seen("POST", "/shop/notify/a%2Fb?tenant=7&x=%e8", http.Header{
		"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"}, "X-Trace": {"one", "two"}, "Authorization": {"Basic confidential-password"}}, genuine)
	if got := b.merchant.notifications(); len(got) != 1 || got[0] != want {
		t.Errorf("passed on\n%q\nwant\n%q", got, want)
	}
	b.until(t, "asked", func() bool { _, queries := b.platform.counts(); return queries == 1 })

	b.platform.settle()
	for range 3 { // the platform repeats it: to the merchant, but no query
		if got := b.notify(t, "alipay", "/notify", genuine); got.status != http.StatusAccepted {
			t.Error(got)
		}
	}
	b.notify(t, "alipay", "/notify", b.platform.notification("N2", "order-nine")) // another order
	if _, queries := b.platform.counts(); queries != 1 || b.call(id).State != "unknown" || len(b.merchant.notifications()) != 5 {
		t.Errorf("%d queries, %s, %d passed on; want 1, unknown, 5", queries, b.call(id).State, len(b.merchant.notifications()))
	}
	b.notify(t, "alipay", "/notify", b.platform.notification("N3", "order-one"))
	b.until(t, "decided", func() bool { return b.call(id).State == "done" })
	b.notify(t, "alipay", "/notify", b.platform.notification("N4", "order-one"))
	if pays, queries := b.platform.counts(); pays != 1 || queries != 2 || b.call(id).State != "done" {
		t.Errorf("%d payments, %d queries, %s; want 1, 2, done", pays, queries, b.call(id).State)
	}
	if !strings.Contains(b.body("/metrics"), `throttler_notification_queries_total{upstream="alipay"} 2`) || b.counted("alipay", "passed_on") != "7" {
		t.Errorf("the metrics have not 2 queries and 7 notifications, but %s", b.counted("alipay", "passed_on"))
	}
	for _, secret := range []string{"confidential", "out_trade_no", "order-one", endpointSecret} {
		if strings.Contains(b.log.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// TestNotificationsAreBounded: late, large, slow and misdirected requests, and more at once
// than the merchant takes, are refused; without the merchant's answer the platform gets none
// that it may take for one.
func TestNotificationsAreBounded(t *testing.T) {
	t.Parallel()
	b := ring(t)
	event := `{"id":"evt_1","data":{"object":{"object":"charge","id":"ch_1"}}}`
	signed := func(at time.Time) string {
		mac := hmac.New(sha256.New, []byte(endpointSecret))
		fmt.Fprintf(mac, "%d.%s", at.Unix(), event)
		return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
	}
	for _, tt := range []struct {
		name, of, target, body, signature string
		status                            int
	}{
		{"genuine", "stripe", "/hook", event, signed(time.Now()), 202},
		{"an hour old", "stripe", "/hook", event, signed(time.Now().Add(-time.Hour)), 401},
		{"another path", "stripe", "/hook?x=1", event, signed(time.Now()), 404},
		{"a path with dots", "alipay", "/../x", b.platform.notification("N1", "order-one"), "", 400},
		{"large", "alipay", "/", strings.Repeat("x", 1<<20+1), "", 413},
		{"no bytes", "stripe", "/hook", "", signed(time.Now()), 401},
	} {
		before := len(b.merchant.notifications())
		got := b.notify(t, tt.of, tt.target, tt.body, "Stripe-Signature", tt.signature)
		if got.status != tt.status {
			t.Errorf("%s: %+v, want %d", tt.name, got, tt.status)
		}
		if passed := len(b.merchant.notifications()) - before; passed == 1 != (tt.status == 202) {
			t.Errorf("%s: %d were passed on", tt.name, passed)
		}
	}
	if got := send(t, http.MethodGet, b.url(t, "upstreams.alipay.notifications.listen")+"/notify", ""); got.status != 405 {
		t.Errorf("GET: %+v", got)
	}

	slow, err := net.Dial("tcp", strings.TrimPrefix(b.url(t, "upstreams.alipay.notifications.listen"), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	io.WriteString(slow, "POST /notify HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsign=")

	b.merchant.mu.Lock()
	b.merchant.hold = make(chan struct{})
	b.merchant.mu.Unlock()
	before := len(b.merchant.notifications())
	var held sync.WaitGroup
	for i := range 4 {
		held.Go(func() {
			if got := b.notify(t, "alipay", "/notify", b.platform.notification(fmt.Sprint("H", i), "order-one")); got.status != 202 {
				t.Errorf("held: %+v", got)
			}
		})
	}
	b.until(t, "full", func() bool { return len(b.merchant.notifications()) == before+4 })
	if got := b.notify(t, "alipay", "/notify", b.platform.notification("H5", "order-one")); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %+v", got)
	}
	close(b.merchant.hold)
	held.Wait()

	slow.SetReadDeadline(time.Now().Add(60 * time.Second))
	if answer, err := io.ReadAll(slow); !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("a body that does not go on: %.100s, %v", answer, err)
	}
	b.shop.Close()
	if got := b.notify(t, "alipay", "/notify", b.platform.notification("N9", "order-one")); got.status != 502 || strings.Contains(got.body, "success") {
		t.Errorf("without a merchant: %+v", got)
	}
	if undelivered := b.counted("alipay", "undelivered"); undelivered != "1" {
		t.Errorf("%s undelivered, want 1", undelivered)
	}
}

// TestNotificationSurvivesAKill: a sidecar that is killed while the merchant works on a
// notification has stored nothing of it. The platform, which has no answer, sends it again:
// it is passed on, and the call is queried.
func TestNotificationSurvivesAKill(t *testing.T) {
	b := ring(t)
	id := b.pay(t, "order-one")
	b.merchant.hold = make(chan struct{})
	defer close(b.merchant.hold)
	answered := make(chan answer)
	go func() { answered <- b.notify(t, "alipay", "/notify", b.platform.notification("N1", "order-one")) }()
	b.until(t, "at the merchant's", func() bool { return len(b.merchant.notifications()) == 1 })
	b.until(t, "asked", func() bool { _, queries := b.platform.counts(); return queries == 1 })
	b.kill9()
	if got := <-answered; got.status != 0 {
		t.Fatalf("the platform has an answer: %+v", got)
	}
	b.merchant.mu.Lock()
	b.merchant.hold, b.merchant.got = nil, nil
	b.merchant.mu.Unlock()

	b.platform.settle()
	b.launch(t)
	if got := b.call(id).State; got != "unknown" {
		t.Fatalf("after the restart: %s", got)
	}
	b.until(t, "decided", func() bool { // the process may yet take the call up
		if got := b.notify(t, "alipay", "/notify", b.platform.notification("N1", "order-one")); got.status != 202 {
			t.Errorf("%+v", got)
		}
		return b.call(id).State == "done"
	})
	if pays, _ := b.platform.counts(); pays != 1 {
		t.Errorf("%d payments", pays)
	}
}

// TestNotificationsReload: a reload passes notifications on to another merchant, and takes
// the listener away.
func TestNotificationsReload(t *testing.T) {
	b := ring(t)
	next := &merchant{}
	shop := httptest.NewServer(next)
	defer shop.Close()
	write := func(yaml string) {
		if err := os.WriteFile(b.file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := send(t, http.MethodPost, b.admin+"/v1/config/reload", ""); got.status != 200 {
			t.Fatal(got)
		}
	}
	write(strings.Replace(b.yaml, b.shop.URL+"/shop", shop.URL, 1))
	if got := b.notify(t, "alipay", "/notify", b.platform.notification("N1", "order-one")); got.status != 202 || len(next.notifications()) != 1 || len(b.merchant.notifications()) != 0 {
		t.Errorf("%+v; %d and %d", got, len(next.notifications()), len(b.merchant.notifications()))
	}
	i, j := strings.Index(b.yaml, "    notifications:"), strings.Index(b.yaml, "    resolve:")
	write(b.yaml[:i] + b.yaml[j:])
	b.until(t, "without the listener", func() bool {
		return b.notify(t, "alipay", "/notify", b.platform.notification("N2", "order-one")).status == 0
	})
	if len(next.notifications()) != 1 {
		t.Error("a notification was passed on after the reload")
	}
}
