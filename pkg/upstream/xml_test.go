package upstream

import (
	"net/http"
	"strings"
	"testing"
)

// TestXML: an expression reads the XML that all servers read alike, or the call is refused.
func TestXML(t *testing.T) {
	const text = "text/xml; charset=utf-8"
	for name, tt := range map[string]struct {
		key  string
		r    *Request
		want string // empty for an error
	}{
		"text":                     {`xml("m")`, post(text, "/", "<xml><m>refund</m></xml>"), "refund"},
		"behind others":            {`xml("m")`, post(text, "/", "<xml><a/><b/><m>refund</m></xml>"), "refund"},
		"CDATA":                    {`xml("m")`, post(text, "/", "<xml><m><![CDATA[refund]]></m></xml>"), "refund"},
		"CDATA on its own line":    {`xml("m")`, post(text, "/", "<xml><m>\n<![CDATA[refund]]>\n</m></xml>"), "refund"},
		"nested":                   {`xml("a.m")`, post(text, "/", "<xml><a><m>refund</m></a><m>x</m></xml>"), "refund"},
		"with a star":              {`xml("*_request.m")`, post(text, "/", "<xml><b_request><m>refund</m></b_request></xml>"), "refund"},
		"with a prefix":            {`xml("s:Body.m")`, post("application/soap+xml", "/", `<s:Envelope xmlns:s="u"><s:Body><m>refund</m></s:Body></s:Envelope>`), "refund"},
		"a declaration":            {`xml("m")`, post(text, "/", ` <?xml version="1.0"?><xml><m>refund</m></xml>`), "refund"},
		"a byte order mark":        {`xml("m")`, post(text, "/", "\xef\xbb\xbf<xml><m>refund</m></xml>"), "refund"},
		"sent as a form":           {`xml("m")`, post(form, "/", "<xml><m>refund</m></xml>"), "refund"},
		"sent without a type":      {`xml("m")`, &Request{Method: "POST", Target: "/", Body: []byte("<xml><m>refund</m></xml>")}, "refund"},
		"none":                     {`xml("m") ?? "none"`, post(text, "/", "<xml><a>1</a></xml>"), "none"},
		"below a text":             {`xml("a.m") ?? "none"`, post(text, "/", "<xml><a>1</a></xml>"), "none"},
		"an empty one":             {`xml("m") + "!"`, post(text, "/", "<xml><m/></xml>"), "!"},
		"no body":                  {`xml("m") ?? "none"`, post(text, "/", " \n"), "none"},
		"JSON":                     {`xml("m") ?? json("m")`, post("application/json", "/", `{"m":"refund"}`), "refund"},
		"JSON of XML":              {`json("m") ?? "none"`, post(text, "/", "<xml><m>refund</m></xml>"), "none"},
		"another one twice":        {`xml("m")`, post(text, "/", "<xml><m>refund</m><a/><a/></xml>"), "refund"},
		"twice":                    {`xml("m")`, post(text, "/", "<xml><m>query</m><m>refund</m></xml>"), ""},
		"twice on the way":         {`xml("a.m")`, post(text, "/", "<xml><a/><a><m>refund</m></a></xml>"), ""},
		"twice, in two cases":      {`xml("m")`, post(text, "/", "<xml><m>query</m><M>refund</M></xml>"), ""},
		"twice, with a prefix":     {`xml("m")`, post(text, "/", `<xml><m>query</m><p:m xmlns:p="u">refund</p:m></xml>`), ""},
		"in another case":          {`xml("m") ?? "none"`, post(text, "/", "<xml><M>refund</M></xml>"), ""},
		"with another prefix":      {`xml("m") ?? "none"`, post(text, "/", `<xml><p:m xmlns:p="u">refund</p:m></xml>`), ""},
		"a dot for an underscore":  {`xml("a_m") ?? "none"`, post(text, "/", "<xml><a.m>refund</a.m></xml>"), ""},
		"two by a star":            {`xml("*m")`, post(text, "/", "<xml><am>query</am><bm>refund</bm></xml>"), ""},
		"an element with elements": {`xml("m") ?? "none"`, post(text, "/", "<xml><m><a/></m></xml>"), ""},
		"a document type":          {`xml("m")`, post(text, "/", `<!DOCTYPE x [<!ENTITY e "refund">]><xml><m>&e;</m></xml>`), ""},
		"a document type, unused":  {`xml("m") ?? "none"`, post(text, "/", `<!DOCTYPE x SYSTEM "u"><xml><m>refund</m></xml>`), ""},
		"a comment":                {`xml("m")`, post(text, "/", "<xml><m>query<!-- -->refund</m></xml>"), ""},
		"a broken text":            {`xml("m") ?? "none"`, post(form, "/", "<xml><m>refund</m>"), ""},
		"said to be XML":           {`xml("m") ?? "none"`, post("application/xml", "/", "m=refund"), ""},
		"a text of another kind":   {`xml("m") ?? "none"`, post(form, "/", "m=refund"), "none"},
		"packed":                   {`xml("m") ?? "none"`, &Request{Method: "POST", Target: "/", Header: http.Header{"Content-Encoding": {"gzip"}}, Body: []byte("\x1f\x8b")}, ""},
		"in EBCDIC":                {`xml("m") ?? "none"`, post("text/xml; charset=ibm037", "/", "\x4c"), ""},
		"very deep":                {`xml("m") ?? "none"`, post(text, "/", strings.Repeat("<a>", 1<<20)), ""},
		"a query of its own":       {`toXML({"b": xml("m"), "a": "<1>", "n": 7, "none": nil, "empty": ""})`, post(text, "/", "<xml><m>x&amp;y</m></xml>"), "<xml><a>&lt;1&gt;</a><b>x&amp;y</b><n>7</n></xml>"},
		"a query with a bad name":  {`toXML({"a b": 1})`, post(text, "/", "<xml/>"), ""},
		"with a number for a name": {`toXML({"1": 1})`, post(text, "/", "<xml/>"), ""},
		"with all kinds of names":  {`toXML({"a0": 1, "A9": 2, "z-": 3, "Z.": 4, "_x": 5})`, post(text, "/", "<xml/>"), "<xml><A9>2</A9><Z.>4</Z.><_x>5</_x><a0>1</a0><z->3</z-></xml>"},
		"with a brace":             {`toXML({"a{": 1})`, post(text, "/", "<xml/>"), ""},
		"with a backquote":         {`toXML({"a` + "`" + `": 1})`, post(text, "/", "<xml/>"), ""},
		"with a slash":             {`toXML({"a/": 1})`, post(text, "/", "<xml/>"), ""},
		"with a colon":             {`toXML({"a:": 1})`, post(text, "/", "<xml/>"), ""},
		"with a dash ahead":        {`toXML({"-a": 1})`, post(text, "/", "<xml/>"), ""},
		"with no name":             {`toXML({"": 1})`, post(text, "/", "<xml/>"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Compile(tt.key, Key)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Key(NewInput(tt.r))
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
			if err != nil && (strings.Contains(err.Error(), "refund") || strings.Contains(err.Error(), "query")) {
				t.Errorf("the error quotes the request: %v", err)
			}
		})
	}
}

// A rule reads the XML of the request beside that of the answer.
func TestXMLInRules(t *testing.T) {
	rules, err := CompileRules("outcomes", []Rule{{When: `body("xml.fee") == xml("fee")`, Is: Done}})
	if err != nil {
		t.Fatal(err)
	}
	in := NewInput(post("text/xml", "/", "<xml><fee>7</fee></xml>"))
	for answer, want := range map[string]bool{"<xml><fee>7</fee></xml>": true, "<xml><fee>8</fee></xml>": false} {
		if got, _ := rules.Judge(in, 200, nil, []byte(answer), false); (got != nil) != want {
			t.Errorf("%s: %v", answer, got)
		}
	}
}
