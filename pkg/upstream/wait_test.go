package upstream

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestWaitOfAnswers: the wait of an attempt, by its outcome, its fields, its body and its rule.
func TestWaitOfAnswers(t *testing.T) {
	telegram := Rule{When: "status == 429", Is: NotExecuted, Pause: &Pause{ForExpr: `body("parameters.retry_after")`}}
	later := Rule{When: "status == 429", Is: NotExecuted, AfterExpr: `body("parameters.retry_after")`}
	shopify := Rule{When: `body("errors.0.extensions.code") == "THROTTLED"`, Is: NotExecuted, Pause: &Pause{
		ForExpr: `(body("c.requestedQueryCost") - body("c.throttleStatus.currentlyAvailable")) / body("c.throttleStatus.restoreRate")`}}
	for _, tt := range []struct {
		name, fields, body string
		status             int
		rule               Rule
		maxPause           time.Duration
		asked, after       time.Duration
		err                error
	}{
		{name: "fields", status: 429, fields: "Retry-After: 2.5", asked: 2500 * time.Millisecond, after: 2500 * time.Millisecond},
		{name: "a reset without a remaining number of an answer that limits", status: 429, fields: "X-RateLimit-Reset: 30", asked: 30 * time.Second, after: 30 * time.Second},
		{name: "the same of another one", status: 500, fields: "X-RateLimit-Reset: 30"},
		{name: "done", status: 200, fields: "Retry-After: 30"},
		{name: "failed", status: 400, fields: "Retry-After: 30"},
		{name: "above max_pause", status: 429, fields: "Retry-After: 172800", asked: 48 * time.Hour, after: 24 * time.Hour},
		{name: "above a max_pause of its own", status: 429, fields: "Retry-After: 120", maxPause: time.Minute, asked: 2 * time.Minute, after: time.Minute},
		{name: "the rule's own time", status: 429, rule: Rule{When: "status == 429", Is: NotExecuted, After: 48 * time.Hour}, after: 48 * time.Hour},
		{name: "the rule's own time and a field", status: 429, fields: "Retry-After: 9", rule: Rule{When: "status == 429", Is: NotExecuted, After: 5 * time.Second}, asked: 9 * time.Second, after: 9 * time.Second},
		{name: "Telegram", status: 429, body: `{"parameters":{"retry_after":35}}`, rule: telegram, asked: 35 * time.Second, after: 35 * time.Second},
		{name: "Telegram, this call alone", status: 429, body: `{"parameters":{"retry_after":35}}`, rule: later, asked: 35 * time.Second, after: 35 * time.Second},
		{name: "Discord's fraction", status: 429, body: `{"parameters":{"retry_after":64.5701}}`, rule: telegram, asked: 64571 * time.Millisecond, after: 64571 * time.Millisecond},
		{name: "a number in a text", status: 429, body: `{"parameters":{"retry_after":"35"}}`, rule: telegram, asked: 35 * time.Second, after: 35 * time.Second},
		{name: "a duration", status: 429, body: `{"parameters":{"retry_after":"1m30s"}}`, rule: telegram, asked: 90 * time.Second, after: 90 * time.Second},
		{name: "the expression stands above the fields", status: 429, fields: "Retry-After: 60", body: `{"parameters":{"retry_after":35}}`, rule: telegram, asked: 35 * time.Second, after: 35 * time.Second},
		{name: "above max_pause too", status: 429, body: `{"parameters":{"retry_after":500000}}`, rule: telegram, asked: 500000 * time.Second, after: 24 * time.Hour},
		{name: "absent", status: 429, fields: "Retry-After: 60", body: `{"ok":false}`, rule: telegram, asked: time.Minute, after: time.Minute},
		{name: "empty", status: 429, fields: "Retry-After: 60", body: `{"parameters":{"retry_after":""}}`, rule: telegram, asked: time.Minute, after: time.Minute},
		{name: "no body", status: 429, rule: telegram},
		{name: "an HTML page", status: 429, body: "<html><body>Too many</body></html>", rule: telegram},
		{name: "negative", status: 429, fields: "Retry-After: 60", body: `{"parameters":{"retry_after":-35}}`, rule: telegram, asked: time.Minute, after: time.Minute, err: errNoWait},
		{name: "a list", status: 429, body: `{"parameters":{"retry_after":[35]}}`, rule: telegram, err: errNoWait},
		{name: "a word", status: 429, body: `{"parameters":{"retry_after":"secret"}}`, rule: telegram, err: errNoWait},
		{name: "half a body", status: 429, body: `{"parameters":{"retry_after":35` + strings.Repeat(" ", 5000), rule: telegram, err: errNotWhole},
		{name: "Shopify's cost", status: 200, body: `{"errors":[{"extensions":{"code":"THROTTLED"}}],"c":{"requestedQueryCost":202,"throttleStatus":{"currentlyAvailable":118,"restoreRate":50}}}`, rule: shopify, asked: 1680 * time.Millisecond, after: 1680 * time.Millisecond},
		{name: "a division by zero", status: 200, body: `{"errors":[{"extensions":{"code":"THROTTLED"}}],"c":{"requestedQueryCost":202,"throttleStatus":{"currentlyAvailable":118,"restoreRate":0}}}`, rule: shopify, err: errNoWait},
		{name: "arithmetic with a text", status: 200, body: `{"errors":[{"extensions":{"code":"THROTTLED"}}],"c":{"requestedQueryCost":"secret","throttleStatus":{"currentlyAvailable":1,"restoreRate":5}}}`, rule: shopify, err: errUncomputable},
		{name: "arithmetic without its members", status: 200, body: `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, rule: shopify, err: errUncomputable},
	} {
		header := make(http.Header)
		if name, value, ok := strings.Cut(tt.fields, ": "); ok {
			header.Set(name, value)
		}
		config := Config{URL: "http://api.example", MaxPause: tt.maxPause, MaxInspect: 4096, Transport: constant(tt.status, header, tt.body)}
		if tt.rule.When != "" {
			config.Outcomes = []Rule{tt.rule}
		}
		u, err := New(config)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		res := u.Do(t.Context(), &Request{Method: "POST", Target: "/"})
		if res.Response != nil {
			res.Response.Body.Close()
		}
		if res.Asked != tt.asked || res.RetryAfter != tt.after || !errors.Is(res.WaitErr, tt.err) {
			t.Errorf("%s: %s, asked %v, after %v, %v; want %v, %v, %v", tt.name, res.Outcome, res.Asked, res.RetryAfter, res.WaitErr, tt.asked, tt.after, tt.err)
		}
		if res.WaitErr != nil && strings.Contains(res.WaitErr.Error(), "secret") {
			t.Errorf("%s: %v quotes the answer", tt.name, res.WaitErr)
		}
	}
}

// TestWaitExpressionFaults: each fault names its field.
func TestWaitExpressionFaults(t *testing.T) {
	for _, tt := range []struct {
		rule Rule
		want string
	}{
		{Rule{When: "status == 429", Is: NotExecuted, Pause: &Pause{ForExpr: `bodi("x")`}}, "[0].pause.for: "},
		{Rule{When: "status == 429", Is: NotExecuted, Pause: &Pause{ForExpr: `status == 1`}}, "[0].pause.for: gives no number of seconds"},
		{Rule{When: "true", Is: Unknown, AfterExpr: `body("x"`}, "[0].after: "},
		{Rule{When: "true", Is: Failed, AfterExpr: `body("x")`}, "[0].after: only a not_executed or unknown call"},
		{Rule{When: "true", Is: Unknown, AfterExpr: `body("x")`, After: 1}, "[0].after: is a time and an expression"},
		{Rule{When: "status == 429", Is: NotExecuted, Pause: &Pause{ForExpr: `body("x")`, For: 1}}, "[0].pause.for: is a time and an expression"},
		{Rule{When: "status == 429", Is: NotExecuted, Pause: &Pause{ForExpr: `body("x")`}, AfterExpr: `body("x")`}, "[0].after: is an expression beside"},
	} {
		if _, err := CompileRules("outcomes", []Rule{tt.rule}); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.rule, err, tt.want)
		}
	}
	if _, err := New(Config{URL: "http://api.example", MaxPause: -time.Second}); err == nil || !strings.Contains(err.Error(), "max_pause: -1s must be positive") {
		t.Errorf("a negative max_pause: %v", err)
	}
}

// TestRemainingInRules: a rule can ask whether fields prove that an answer limits.
func TestRemainingInRules(t *testing.T) {
	rules := []Rule{{When: "status in [403, 503] and remaining == 0", Is: NotExecuted}, {When: "status == 403 and remaining == nil", Is: Failed}, {When: "status == 403", Is: Unknown}}
	for fields, want := range map[string]Outcome{"": Failed, "X-RateLimit-Remaining: 0": NotExecuted, "X-RateLimit-Remaining: 7": Unknown, `RateLimit: "day";r=0;t=9`: NotExecuted} {
		header := make(http.Header)
		if name, value, ok := strings.Cut(fields, ": "); ok {
			header.Set(name, value)
		}
		u, err := New(Config{URL: "http://api.example", Outcomes: rules, Transport: constant(403, header, "")})
		if err != nil {
			t.Fatal(err)
		}
		res := u.Do(t.Context(), &Request{Method: "POST", Target: "/"})
		res.Response.Body.Close()
		if res.Outcome != want {
			t.Errorf("%q: %s, want %s", fields, res.Outcome, want)
		}
	}
}

// constant returns a transport that gives one answer.
func constant(status int, header http.Header, body string) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}, nil
	})
}

// TestRulesReadTheAnswer: a rule that sends calls again reads something of the answer, for else it would send
// each executed call again. Other rules may hold for all that is left.
func TestRulesReadTheAnswer(t *testing.T) {
	for when, reads := range map[string]bool{
		"true": false, "false": false, "1 == 1": false, `method == "POST"`: false, "keyed and not repeat": false,
		"status == 429": true, `header("X-Limited") == "1"`: true, `body("code") == 7`: true, "remaining == 0": true, `error == "reset"`: true, "not sent": true,
	} {
		_, err := CompileRules("outcomes", []Rule{{When: when, Is: NotExecuted}})
		if reads != (err == nil) || err != nil && !strings.Contains(err.Error(), "reads nothing of the answer") {
			t.Errorf("%s, not_executed: %v", when, err)
		}
		if _, err := CompileRules("outcomes", []Rule{{When: when, Is: Unknown}}); err != nil {
			t.Errorf("%s, unknown: %v", when, err)
		}
	}
}
