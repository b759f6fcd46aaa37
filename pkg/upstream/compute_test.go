package upstream

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/expr-lang/expr/builtin"
)

// TestComputable: each operator and builtin with a member that is absent, and with one of another
// type. An update of the library that says its errors otherwise is seen here.
func TestComputable(t *testing.T) {
	const (
		text, number, truth, list, object = `"s3cret"`, `7.5`, `true`, `["s3cret"]`, `{"s3cret":1}`

		isFalse, isTrue = "false", "true"
	)
	for _, tt := range []struct {
		when   string
		absent string // isFalse, isTrue, or the error
		value  string // of another type
		want   string // likewise
	}{
		// Comparisons for equality have a value for all types.
		{`body("x") == 1`, isFalse, text, isFalse},
		{`body("x") != 1`, isTrue, text, isTrue},
		{`body("x") == "a"`, isFalse, number, isFalse},
		{`body("x") < 1`, isFalse, text, "a text is compared with a number"},
		{`body("x") <= 1`, isFalse, list, "a list is compared with a number"},
		{`body("x") > 1`, isFalse, object, "an object is compared with a number"},
		{`body("x") >= "a"`, isFalse, number, "a number is compared with a text"},
		{`1 < body("x")`, isFalse, truth, "a number is compared with true or false"},
		{`let y = body("x"); y > 1`, isFalse, text, "a text is compared with a number"},
		{`not (body("x") > 1)`, isFalse, text, "a text is compared with a number"},
		{`body("y") == nil or body("x") > 1`, isTrue, text, isTrue},
		{`body("y") != nil and body("x") > 1`, isFalse, text, isFalse},
		{`body("x") in ["a", "b"]`, isFalse, number, "a number is looked for in a list of texts or numbers of another type"},
		{`body("x") not in ["a"]`, isTrue, number, "a number is looked for in a list of texts or numbers of another type"},
		{`body("x") in [1, 2]`, isFalse, text, isFalse}, // as with ==
		{`body("x") in 1..3`, isFalse, text, isFalse},
		{`"a" in body("x")`, isFalse, number, "in does not work with a number"},
		{`body("x") matches "^s"`, isFalse, number, "a number stands where a text belongs"},
		{`"a" matches body("x")`, isFalse, number, "a number stands where a text belongs"},
		{`body("x") contains "a"`, isFalse, list, "a list stands where a text belongs"},
		{`body("x") startsWith "a"`, isFalse, object, "an object stands where a text belongs"},
		{`body("x") endsWith "a"`, isFalse, truth, "true or false stands where a text belongs"},
		{`len(body("x")) > 0`, isFalse, number, "len does not take a number"},
		{`any(body("x"), # == 1)`, isFalse, number, "a number stands where a list belongs"},
		{`all(body("x"), # == 1)`, isFalse, object, "an object stands where a list belongs"},
		{`none(body("x"), # == 1)`, isFalse, truth, "true or false stands where a list belongs"},
		{`one(body("x"), # == 1)`, isFalse, number, "a number stands where a list belongs"},
		{`count(body("x"), # == 1) > 0`, isFalse, number, "a number stands where a list belongs"},
		{`len(filter(body("x"), # == 1)) > 0`, isFalse, number, "a number stands where a list belongs"},
		{`map(body("x"), #) == []`, isFalse, number, "a number stands where a list belongs"},
		{`find(body("x"), # == 1) == 1`, isFalse, number, "a number stands where a list belongs"},
		{`sum(body("x")) > 1`, isFalse, number, "a number stands where a list belongs"},
		{`reduce(body("x"), #acc + #) == 1`, isFalse, number, "a number stands where a list belongs"},
		{`float(body("x")) > 1`, isFalse, text, "float is given a value that is no number"},
		{`int(body("x")) > 1`, isFalse, text, "int is given a value that is no number"},
		{`string(body("x")) == "a"`, isFalse, number, isFalse},
		{`lower(body("x")) == "a"`, isFalse, number, "a number stands where a text belongs"},
		{`upper(body("x")) == "a"`, isFalse, list, "a list stands where a text belongs"},
		{`body("x") | lower() == "a"`, isFalse, number, "a number stands where a text belongs"},
		{`trim(body("x")) == "a"`, isFalse, number, "a number stands where a text belongs"},
		{`trimPrefix(body("x"), "a") == "a"`, isFalse, number, "a number stands where a text belongs"},
		{`split(body("x"), ",") == ["a"]`, isFalse, number, "a number stands where a text belongs"},
		{`join(body("x"), ",") == "a"`, isFalse, number, "join does not take a number"},
		{`replace(body("x"), "a", "b") == "b"`, isFalse, number, "a number stands where a text belongs"},
		{`hasPrefix(body("x"), "a")`, isFalse, number, "a number stands where a text belongs"},
		{`hasSuffix(body("x"), "a")`, isFalse, number, "a number stands where a text belongs"},
		{`indexOf(body("x"), "a") > 1`, isFalse, number, "a number stands where a text belongs"},
		{`body("x") + 1 > 1`, isFalse, text, "+ does not work with a text and a number"},
		{`body("x") - 1 > 1`, isFalse, text, "- does not work with a text and a number"},
		{`body("x") * 2 > 1`, isFalse, list, "* does not work with a list and a number"},
		{`2 / body("x") > 1`, isFalse, text, "/ does not work with a number and a text"},
		{`body("x") % 2 == 1`, isFalse, text, "% does not work with a text and a number"},
		{`-body("x") > 1`, isFalse, text, "- does not work with a text"},
		{`body("x") ** 2 > 1`, isFalse, text, "float is given a value that is no number"},
		{`body("x").a == 1`, isFalse, number, "a number has no parts"},
		{`body("x")["a"] == 1`, isFalse, number, "a number has no parts"},
		{`body("x")[0] == 1`, isFalse, number, "a number has no parts"},
		{`body("x")[3] == 1`, isFalse, list, "a list or text is shorter than an index"},
		{`body("x")?.a == 1`, isFalse, object, isFalse},
		{`not body("x")`, isFalse, number, "a number stands where true or false belongs"},
		{`body("x") and true`, isFalse, text, "it gives a text, and not true or false"},
		{`body("x") or true`, isTrue, text, isTrue},
		{`body("x") ? true : false`, isFalse, text, "a text stands where true or false belongs"},
		{`body("x")`, isFalse, text, "it gives a text, and not true or false"},
		{`(body("x") ?? 0) > 1`, isFalse, text, "a text is compared with a number"},
		{`abs(body("x")) > 1`, isFalse, text, "abs does not take a text"},
		{`ceil(body("x")) > 1`, isFalse, text, "ceil does not take a text"},
		{`floor(body("x")) > 1`, isFalse, text, "floor does not take a text"},
		{`round(body("x")) > 1`, isFalse, text, "round does not take a text"},
		{`max(body("x"), 1) > 1`, isFalse, text, "max does not take a text"},
		{`min(body("x"), 3) > 1`, isFalse, text, "min does not take a text"},
		{`mean(body("x")) > 1`, isFalse, text, "mean does not take a text"},
		{`first(body("x")) == 1`, isFalse, list, isFalse},
		{`last(body("x")) == 1`, isFalse, list, isFalse},
		{`keys(body("x")) == ["a"]`, isFalse, number, other},
		{`values(body("x")) == ["a"]`, isFalse, number, other},
		{`uniq(body("x")) == ["a"]`, isFalse, number, other},
		{`take(body("x"), 1) == ["a"]`, isFalse, number, other},
		{`toJSON(body("x")) contains "never"`, isFalse, text, isFalse},
		{`fromJSON(body("x")) == 1`, isFalse, text, "fromJSON has a text that is no JSON, such as an encrypted one"},
		{`date(body("x")).Year() > 1`, isFalse, text, other},
		{`duration(body("x")).Seconds() > 1`, isFalse, text, other},
		{`bitand(body("x"), 1) == 1`, isFalse, text, "bitand takes a number, not a text"},
		{`toXML(body("x")) == ""`, isFalse, number, "a number stands where an object belongs"},
		{`header(body("x")) == "a"`, isFalse, number, "a number stands where a text belongs"},
		{`type(body("x")) == "a"`, isFalse, text, isFalse},
		// A part of an absent text has no message of its own, so the safe reading counts.
		{`body("x")[1:2] == "a"`, other, number, other},
		{`(body("x") ?? "")[1:2] == "a"`, isFalse, text, isFalse},
		// A parameter that is there twice cannot be read, whatever the answer.
		{`query("twice") == "1"`, "a parameter occurs twice", text, "a parameter occurs twice"},
	} {
		rules, err := CompileRules("outcomes", []Rule{{When: tt.when, Is: Failed}})
		if err != nil {
			t.Errorf("%s: %v", tt.when, err)
			continue
		}
		for answer, want := range map[string]string{`{"y":1}`: tt.absent, `{"y":1,"x":null}`: tt.absent, `{"y":1,"x":` + tt.value + `}`: tt.want} {
			if tt.when == `body("y") == nil or body("x") > 1` || tt.when == `body("y") != nil and body("x") > 1` {
				answer = strings.Replace(answer, `"y":1,`, "", 1)
				answer = strings.Replace(answer, `"y":1`, "", 1)
			}
			rule, err := rules.Judge(NewInput(post("", "/?twice=1&twice=2", "")), 200, http.Header{}, []byte(answer), false)
			got := map[bool]string{true: isTrue, false: isFalse}[rule != nil]
			if err != nil {
				got = err.Error()
				want = "rule outcomes[0] cannot be computed: " + want + " (in " + inQuotes(tt.when) + ")"
			}
			if got != want {
				t.Errorf("%s of %s: %s, want %s", tt.when, answer, got, want)
			}
			if strings.Contains(got, "s3cret") || strings.Contains(got, "7.5") {
				t.Errorf("%s of %s: the reason shows a value: %s", tt.when, answer, got)
			}
		}
	}
}

// other is the reason of errors whose message may hold a value.
const other = "a part of it does not fit the values"

// TestUncomputableRules: no later rule is asked, the status does not decide, and the rule is named
// as its file or preset counts it.
func TestUncomputableRules(t *testing.T) {
	rules := []Rule{
		{When: `status == 418`, Is: Done},
		{When: `body("errcode") > 0`, Is: Failed},
		{When: `body("msg") matches "(?i)limit"`, Is: NotExecuted, Pause: &Pause{Limit: "app"}, Preset: "pay"},
		{When: `body("code") > 0`, Is: Unknown, Park: true, Preset: "pay"},
	}
	for _, tt := range []struct {
		status     int
		body       string
		outcome    Outcome
		rule       string
		park, open bool
	}{
		{200, `{}`, Done, "", false, false},
		{200, `{"errcode":40001}`, Failed, "", false, false},
		{200, `{"errcode":"40001"}`, Unknown, "outcomes[1]", true, true},
		{200, `{"errcode":"40001","msg":"limit"}`, Unknown, "outcomes[1]", true, true},
		{404, `{"errcode":"40001"}`, Unknown, "outcomes[1]", true, true},
		{500, `{"errcode":"40001"}`, Unknown, "outcomes[1]", true, false},
		{418, `{"errcode":"40001"}`, Done, "", false, false},
		{200, `{"msg":7}`, Unknown, "outcomes[0] of preset pay", true, true},
		{200, `{"code":"7"}`, Unknown, "outcomes[1] of preset pay", true, true},
		{200, `{"code":7}`, Unknown, "", true, true},
		{200, `{"errcode":`, Unknown, "outcomes[1]", false, true},
		{429, `{"errcode":[]}`, Unknown, "outcomes[1]", true, true},
	} {
		res := judged(t, Config{Outcomes: rules}, &Request{Method: "POST", Target: "/"}, tt.status, nil, tt.body)
		rule := ""
		if res.Uncomputable != nil {
			rule = res.Uncomputable.Rule
			if res.Reason != res.Uncomputable.Error() || !strings.HasPrefix(res.Reason, "rule "+rule+" cannot be computed: ") || res.Pause != nil || res.Ruled {
				t.Errorf("%d %s: %+v", tt.status, tt.body, res)
			}
		}
		if res.Outcome != tt.outcome || rule != tt.rule || res.Park != tt.park || res.Open != tt.open {
			t.Errorf("%d %s: %s by %q (%s), parked: %v, open: %v; want %+v", tt.status, tt.body, res.Outcome, rule, res.Reason, res.Park, res.Open, tt)
		}
	}
}

// TestUncomputableWithoutAnAnswer: a call that was never sent stays so.
func TestUncomputableWithoutAnAnswer(t *testing.T) {
	in := NewInput(post("", "/?n=1&n=2", ""))
	rules, err := CompileRules("outcomes", []Rule{{When: `error != "" and query("n") == "1"`, Is: Failed}})
	if err != nil {
		t.Fatal(err)
	}
	for _, sent := range []bool{true, false} {
		outcome := map[bool]Outcome{true: Unknown, false: NotExecuted}[sent]
		res := &Result{Outcome: outcome, Sent: sent}
		rules.apply(res, in, &answer{failure: "dial", sent: sent})
		if res.Outcome != outcome || res.Uncomputable == nil || res.Park || res.Open {
			t.Errorf("sent %v: %+v", sent, res)
		}
	}
}

// TestJudgedDone: an answer to a query settles no call as done if it is not whole, or of another
// format.
func TestJudgedDone(t *testing.T) {
	rules, err := CompileRules("resolve[0].outcomes", []Rule{
		{When: `status == 404`, Is: NotExecuted},
		{When: `status == 201`, Is: Done},
		{When: `body("state") != "open"`, Is: Done},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		status    int
		body      string
		truncated bool
		want      Outcome
		fault     string
	}{
		{200, `{"state":"paid"}`, false, Done, ""},
		{200, `{"state":"open"}`, false, "", ""},
		{200, `<r><state>paid</state></r>`, false, Done, ""},
		{200, page, false, "", "rule resolve[0].outcomes[2] gives done, but the answer is no whole JSON or XML"},
		{200, ``, false, "", "rule resolve[0].outcomes[2] gives done, but the answer is no whole JSON or XML"},
		{200, `"paid"`, false, "", "rule resolve[0].outcomes[2] gives done, but the answer is no whole JSON or XML"},
		{200, `{"state":"paid"`, false, "", "rule resolve[0].outcomes[2] cannot be computed: the answer's body is cut off"},
		{200, `{"state":"paid","mo`, true, "", "rule resolve[0].outcomes[2] gives done, but the answer is no whole JSON or XML"},
		{200, `{"more":"`, true, "", "rule resolve[0].outcomes[2] cannot be computed: the answer's body goes on"},
		{201, ``, false, Done, ""},
		{201, `{}`, false, Done, ""},
		{201, page, false, "", "rule resolve[0].outcomes[1] gives done, but the answer is no whole JSON or XML"},
		{201, `{}`, true, "", "rule resolve[0].outcomes[1] gives done, but the answer is no whole JSON or XML"},
		{404, page, false, NotExecuted, ""},
	} {
		rule, err := rules.Judge(NewInput(post("", "/", "")), tt.status, http.Header{}, []byte(tt.body), tt.truncated)
		var got Outcome
		if rule != nil {
			got = rule.Is
		}
		if got != tt.want || (err == nil) != (tt.fault == "") || err != nil && !strings.HasPrefix(err.Error(), tt.fault) {
			t.Errorf("%d %.30s: %q, %v; want %q, %q", tt.status, tt.body, got, err, tt.want, tt.fault)
		}
	}
}

// TestBuiltinsAreKnown: a builtin that is new in the library is tried in TestComputable, or is one
// that reads no member.
func TestBuiltinsAreKnown(t *testing.T) {
	if got := len(builtin.Builtins); got != builtinsKnown {
		t.Errorf("expr has %d builtins, and %d were looked at: try the new ones in TestComputable", got, builtinsKnown)
	}
}

const builtinsKnown = 71

// TestUnreadableIsNoFaultOfARule: a rule is right where the body or the request cannot be read.
func TestUnreadableIsNoFaultOfARule(t *testing.T) {
	rules, err := CompileRules("outcomes", []Rule{{When: `body("code") > json("least")`, Is: Failed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		request, answer, coding string
		unreadable              bool
	}{
		"no gzip":           {`{"least":1}`, `{"code":2}`, "gzip", true},
		"half an answer":    {`{"least":1}`, `{"code":`, "", true},
		"no JSON is asked":  {`{"least":`, `{"code":2}`, "", true},
		"a text and number": {`{"least":1}`, `{"code":"2"}`, "", false},
	} {
		in := NewInput(&Request{Method: "POST", Target: "/", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(tt.request)})
		_, err := rules.Judge(in, 200, http.Header{"Content-Encoding": {tt.coding}}, []byte(tt.answer), false)
		var u *Uncomputable
		if !errors.As(err, &u) || u.Unreadable != tt.unreadable {
			t.Errorf("%s: %+v, want unreadable %v", name, err, tt.unreadable)
		}
	}
}
