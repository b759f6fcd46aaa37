package upstream

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBodyValues(t *testing.T) {
	const wechat = `<?xml version="1.0" encoding="UTF-8"?>
<xml><return_code><![CDATA[SUCCESS]]></return_code><result_code>FAIL</result_code>
 <err_code> FREQUENCY_LIMITED </err_code><item id="7"><err_code>inner</err_code></item></xml>`
	tests := []struct {
		name, body, path string
		partial          bool
		want             any
	}{
		{"JSON", `{"a":{"b":"x"}}`, "a.b", false, "x"},
		{"JSON with a star", `{"a_response":{"code":40005}}`, "*_response.code", false, 40005},
		{"JSON behind a byte order mark", "\xef\xbb\xbf{\"a\":1}", "a", false, 1},
		{"broken JSON", `{"a":{"b":"x"`, "a.b", false, errCut},
		{"a log", `[INFO] {"a":1}`, "a", false, nil},
		{"lines of JSON", "{\"a\":1}\n{\"a\":2}", "a", false, nil},
		{"the beginning of JSON", `{"a":{"b":"x"},"list":[1,2`, "a.b", true, "x"},
		{"the beginning of JSON, within a number", `{"a":40`, "a", true, nil},
		{"the beginning of JSON, within a text", `{"a":"40`, "a", true, nil},
		{"the beginning of JSON, within an object", `{"a":{"b":1`, "a", true, nil},
		{"the beginning of JSON, behind a number", `{"a":40,`, "a", true, 40},
		{"the beginning of something else", `a.b: x`, "a.b", true, nil},
		{"XML", wechat, "xml.err_code", false, "FREQUENCY_LIMITED"},
		{"XML, CDATA", wechat, "xml.return_code", false, "SUCCESS"},
		{"XML, deeper", wechat, "xml.item.err_code", false, "inner"},
		{"XML, attribute", wechat, "xml.item.@id", false, "7"},
		{"XML with a star", wechat, "*.result_*", false, "FAIL"},
		{"XML, none", wechat, "xml.nothing", false, nil},
		{"XML, not the root", wechat, "err_code", false, nil},
		{"the beginning of XML", wechat[:150], "xml.return_code", true, "SUCCESS"},
		{"XML in GBK", `<?xml version="1.0" encoding="GBK"?><xml><msg>` + "\xcf\xb5\xcd\xb3" + `</msg><code>LIMITED</code></xml>`, "xml.code", false, "LIMITED"},
		{"entities are not followed", `<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><xml><a>&e;</a></xml>`, "xml.a", false, "&e;"},
		{"a page that is no XML", "<html><body>sorry<br>", "xml.code", false, nil},
		{"cut XML", "<xml><return_code>SUCCESS</return_code><err", "xml.err_code", false, errCut},
		{"nothing", "", "a", false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &answer{body: []byte(tt.body), partial: tt.partial}
			wrong, fails := tt.want.(error)
			got, err := a.value(tt.path)
			if fails && err != wrong || !fails && (err != nil || got != tt.want) {
				t.Errorf("body(%q) = %#v, %v, want %#v", tt.path, got, err, tt.want)
			}
		})
	}
}

// Without an answer, only the rules that name error or sent decide.
func TestRulesWithoutAnAnswer(t *testing.T) {
	rules := []Rule{
		{When: `body("code") != "OK" and status < 500 and method != "x"`, Is: Failed}, // would hold for any error, but is not evaluated
		{When: `error == "timeout" and path == "/safe"`, Is: NotExecuted, After: time.Second},
		{When: `error in ["reset", "closed"] and sent`, Is: Unknown, After: time.Minute, Park: true},
		{When: `error == "cut" and status == 200`, Is: Done},
	}
	hang := make(chan struct{})
	defer close(hang)
	serve := func(answer string) func(int64, string, net.Conn) bool {
		return func(_ int64, _ string, c net.Conn) bool {
			if answer == "hang" {
				<-hang
			}
			io.WriteString(c, answer)
			return false
		}
	}
	tests := []struct {
		name, path, answer string
		want               Outcome
		after              time.Duration
		park               bool
	}{
		{"timeout", "/safe", "hang", NotExecuted, time.Second, false},
		{"timeout of another path", "/", "hang", Unknown, 0, false},
		{"closed", "/", "", Unknown, time.Minute, true},
		{"cut", "/", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", Done, 0, false},
		{"cut, another status", "/", "HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nok", Unknown, 0, false},
		{"an answer", "/", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Failed, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newRawServer(t, serve(tt.answer))
			timeout := 30 * time.Second
			if tt.answer == "hang" {
				timeout = 200 * time.Millisecond
			}
			u := newUpstream(t, Config{URL: s.url(), Outcomes: rules, Timeout: timeout})
			res := do(t, u, &Request{Method: "GET", Target: tt.path})
			if res.Outcome != tt.want || res.RetryAfter != tt.after || res.Park != tt.park {
				t.Errorf("outcome %s, after %v, park %v (%s); want %s, %v, %v", res.Outcome, res.RetryAfter, res.Park, res.Reason, tt.want, tt.after, tt.park)
			}
		})
	}
	u := newUpstream(t, Config{URL: unusedURL, Outcomes: []Rule{{When: `error == "dial" and not sent`, Is: Failed}}})
	if res := do(t, u, &Request{Method: "GET", Target: "/"}); res.Outcome != Failed || res.Sent {
		t.Errorf("failed dial: outcome %s (%s), sent %v; want failed by the rule", res.Outcome, res.Reason, res.Sent)
	}
}

// pieces is a body that arrives in pieces, one second apart.
type pieces struct {
	text []string
	at   time.Time
	end  error
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, p.end
	}
	time.Sleep(time.Until(p.at))
	p.at = time.Now().Add(time.Second)
	n := copy(b, p.text[0])
	p.text = p.text[1:]
	return n, nil
}

func (p *pieces) Close() error { return nil }

// The inspected bytes reach a waiting caller within InspectDelay, and unchanged.
func TestInspectionIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name    string
		stream  bool
		max     int64
		end     error
		outcome Outcome
		after   time.Duration
		err     error // at the end of the body
	}{
		{"no caller waits: all of it", false, 100, io.EOF, Done, 9 * time.Second, nil},
		{"a caller waits: bytes that came in time", true, 100, io.EOF, Unknown, 2500 * time.Millisecond, nil},
		{"a caller waits: enough bytes", true, 10, io.EOF, Unknown, time.Second, nil},
		{"it breaks off later", true, 100, io.ErrUnexpectedEOF, Unknown, 2500 * time.Millisecond, io.ErrUnexpectedEOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := []string{`{"pad":`, `"0123",`, `"a":1,`, `"b":2,`, `"c":3,`, `"d":4,`, `"e":5,`, `"f":6,`, `"g":7,`, `"code":"OK"}`}
				u := newUpstream(t, Config{
					URL: "http://x", InspectDelay: 2500 * time.Millisecond, MaxInspect: tt.max, BodyTimeout: 30 * time.Second,
					Outcomes: []Rule{{When: `body("code") == "OK"`, Is: Done}, {When: `status == 200`, Is: Unknown}},
					Transport: roundTrip(func(*http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: 200, Header: http.Header{}, Body: &pieces{text: text, at: time.Now(), end: tt.end}}, nil
					}),
				})
				start := time.Now()
				attempt := u.Do
				if tt.stream {
					attempt = u.Stream
				}
				res := attempt(t.Context(), &Request{Method: "GET", Target: "/"})
				if res.Outcome != tt.outcome || time.Since(start) != tt.after {
					t.Errorf("outcome %s after %v, want %s after %v", res.Outcome, time.Since(start), tt.outcome, tt.after)
				}
				all, err := io.ReadAll(res.Response.Body)
				if !errors.Is(err, tt.err) || string(all) != strings.Join(text, "") {
					t.Errorf("the caller got %q, %v", all, err)
				}
				res.Response.Body.Close()
			})
		})
	}
	t.Run("a caller that leaves ends it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			body := &pieces{text: []string{"a", "b", "c", "d"}, at: time.Now(), end: io.EOF}
			u := newUpstream(t, Config{URL: "http://x", InspectDelay: 1500 * time.Millisecond, Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Body: body}, nil
			})})
			u.Stream(t.Context(), &Request{Method: "GET", Target: "/"}).Response.Body.Close() // the bubble ends only if no goroutine reads on
		})
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRepeatable(t *testing.T) {
	u := newUpstream(t, Config{URL: "http://x", Idempotent: `method == "GET"`, Idempotency: Idempotency{Header: "Idempotency-Key", Field: "order.no"}})
	for _, tt := range []struct {
		r    Request
		want bool
	}{
		{Request{Method: "GET", Target: "/"}, true},
		{Request{Method: "POST", Target: "/"}, false},
		{Request{Method: "POST", Target: "/", Header: http.Header{"Idempotency-Key": {"k"}}}, true},
		{Request{Method: "POST", Target: "/", Header: http.Header{"Idempotency-Key": {""}}}, false},
		{Request{Method: "POST", Target: "/", Body: []byte(`{"order":{"no":"7"}}`)}, true},
		{Request{Method: "POST", Target: "/", Body: []byte(`{"order":{"no":""}}`)}, false},
		{Request{Method: "POST", Target: "/?order.no=7"}, true},
	} {
		if got := u.Repeatable(NewInput(&tt.r)); got != tt.want {
			t.Errorf("%s %s %v %s: %v, want %v", tt.r.Method, tt.r.Target, tt.r.Header, tt.r.Body, got, tt.want)
		}
	}
}

// TestXMLValues reads elements and attributes by their whole path.
func TestXMLValues(t *testing.T) {
	const text = `<?xml version="1.0" encoding="GBK"?><r v="0"><a v="1"><b v="2">x</b></a><c><b v="3"> y </b></c><b v="4">z</b><d><e v="5"/></d>` + "<n>\x80\xff!</n></r>"
	for path, want := range map[string]any{
		"r.a.b": "x", "r.c.b": "y", "r.b": "z", "r.*.b": "x", "r.a.b.@v": "2", "r.c.b.@v": "3", "r.b.@v": "4", "r.@v": "0", "r.d.e.@v": "5",
		"r.d.e": "", "r.e.@v": nil, "r.x": nil, "b": nil, "r.a.c": nil, "r.a.@w": nil, "r.n": "??!", "a.@v": nil, "r.c.@v": nil,
	} {
		a := answer{body: []byte(text)}
		if got, err := a.value(path); got != want || err != nil {
			t.Errorf("%s: %#v, %v, want %#v", path, got, err, want)
		}
	}
}

// TestUnreadableBodies: a status decides alone where no rule needs a body that cannot be read. Else
// the outcome is unknown, which the breaker does not count below status 500.
func TestUnreadableBodies(t *testing.T) {
	rules, err := CompileRules("outcomes", []Rule{{When: `status != 402 and body("code") == "1"`, Is: Failed}})
	if err != nil {
		t.Fatal(err)
	}
	const in = ` (in 'status != 402 and body("code") == "1"')`
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	for _, tt := range []struct {
		status         int
		encoding, body string
		partial        bool
		outcome        Outcome
		reason         string
		park, open     bool
	}{
		{200, "lz4", "\x04\x22\x4d\x18", false, Unknown, "rule outcomes[0] cannot be computed: the answer's body is in a coding that is not read, lz4" + in, true, true},
		{404, "lz4", "\x04\x22\x4d\x18", false, Unknown, "rule outcomes[0] cannot be computed: the answer's body is in a coding that is not read, lz4" + in, true, true},
		{402, "lz4", "\x04\x22\x4d\x18", false, Failed, "status 402", false, false},
		{500, "gzip", "this is no gzip", false, Unknown, "rule outcomes[0] cannot be computed: the answer's body is no valid gzip" + in, true, false},
		{400, "", `{"co`, true, Unknown, "rule outcomes[0] cannot be computed: " + string(errUnseen) + in, false, true},
		{402, "", `{"co`, true, Failed, "status 402", false, false},
		{300, "", `{"co`, true, Unknown, "rule outcomes[0] cannot be computed: " + string(errUnseen) + in, false, true},
		{400, "", `{"code":"1`, true, Unknown, "rule outcomes[0] cannot be computed: " + string(errUnseen) + in, false, true},
		{400, "", `{"code":"1","more`, true, Failed, `status != 402 and body("code") == "1"`, false, false},
		{299, "", `{"co`, true, Done, "status 299", false, false},
		{200, "", `{"co`, false, Unknown, "rule outcomes[0] cannot be computed: " + string(errCut) + in, false, true},
		{400, "", `{"code":"2"}`, false, Failed, "status 400", false, false},
		{200, "", "", true, Done, "status 200", false, false},
		{200, "lz4", "", false, Done, "status 200", false, false},
		{200, "", deep, false, Unknown, "rule outcomes[0] cannot be computed: " + string(errDeep) + in, true, true},
	} {
		header := http.Header{}
		if tt.encoding != "" {
			header.Set("Content-Encoding", tt.encoding)
		}
		res, a := &Result{}, newAnswer(tt.status, header, []byte(tt.body), tt.partial, DefaultMaxInspect)
		rules.decide(res, NewInput(post("", "/", "")), a)
		if res.Outcome != tt.outcome || res.Reason != tt.reason || res.Park != tt.park || res.Open != tt.open {
			t.Errorf("%d %.20q, packed as %q: %s, %q, parked: %v, open: %v; want %+v", tt.status, tt.body, tt.encoding, res.Outcome, res.Reason, res.Park, res.Open, tt)
		}
	}
}

// TestFromGateway: some statuses are those of a gateway in front of the host that counts.
func TestFromGateway(t *testing.T) {
	for status := range 600 {
		want := slices.Contains([]int{408, 499, 502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 527, 528, 529, 530, 561}, status)
		if got := fromGateway(status); got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
}

// TestInspectionAtItsBound: an answer of just as many bytes as may be inspected is whole.
func TestInspectionAtItsBound(t *testing.T) {
	for size, max := range map[string]int64{"": 1, "x": 1, "0123456789": 10} {
		h, start := inspect(io.NopCloser(strings.NewReader(size)), max, -1, 0)
		if ended, err := h.ended(); !ended || err != io.EOF || string(start) != size {
			t.Errorf("%q of at most %d bytes: %q, ended: %v, %v", size, max, start, ended, err)
		}
	}
	h, start := inspect(io.NopCloser(strings.NewReader("0123456789a")), 10, -1, 0)
	if ended, _ := h.ended(); ended || len(start) < 10 {
		t.Errorf("one byte more: %q, ended: %v", start, ended)
	}
}

// TestLongBodyMayTakeItsTime: BodyTimeout bounds each wait for more of it, not the whole, and
// its timer ends with the body.
func TestLongBodyMayTakeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, closes := range []bool{true, false} {
			life := new(lifetime)
			life.begin(t.Context(), time.Second)
			head, _ := inspect(io.NopCloser(strings.NewReader("0123456789")), 1, -1, 0)
			body := &tail{head, life, time.Second}
			for range 5 {
				time.Sleep(900 * time.Millisecond)
				if n, err := body.Read(make([]byte, 1)); n != 1 || err != nil || life.Err() != nil {
					t.Fatalf("%d bytes, %v, its attempt: %v", n, err, life.Err())
				}
			}
			if closes {
				if body.Close(); life.timer.Stop() {
					t.Error("the timer of a closed body runs on")
				}
				continue
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if cause := life.end(nil); cause != errTimeout {
				t.Errorf("a body that nothing reads: %v, want the time-out", cause)
			}
		}
	})
}
