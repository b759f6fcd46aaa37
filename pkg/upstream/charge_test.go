package upstream

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCharge: a number, or its text, is a cost, and a fraction is rounded up; nothing and an empty
// text are none, and any other value is an error.
func TestCharge(t *testing.T) {
	below := errors.New("-1, below 0")
	for _, tt := range []struct {
		value any
		want  Charge
	}{
		{nil, Charge{}},
		{"", Charge{}},
		{" ", Charge{}},
		{0, Charge{Told: true}},
		{7, Charge{Permits: 7, Told: true}},
		{int64(7), Charge{Permits: 7, Told: true}},
		{7.0, Charge{Permits: 7, Told: true}},
		{float64(1 << 53), Charge{Permits: 1 << 53, Told: true}},
		{math.Nextafter(1<<53, math.MaxFloat64), Charge{Err: errInexact}},
		{7.5, Charge{Permits: 8, Told: true}},
		{0.1, Charge{Permits: 1, Told: true}},
		{-0.1, Charge{Err: errors.New("-0.1, below 0")}},
		{math.NaN(), Charge{Err: errInexact}},
		{math.Inf(1), Charge{Err: errInexact}},
		{" 7 ", Charge{Permits: 7, Told: true}},
		{"7.5", Charge{Permits: 8, Told: true}},
		{"1e400", Charge{Err: errInexact}},
		{"seven", Charge{Err: errNoNumber}},
		{[]any{7}, Charge{Err: errNoNumber}},
		{-1, Charge{Err: below}},
		{"-1", Charge{Err: below}},
	} {
		got := chargeOf(tt.value)
		if got.Permits != tt.want.Permits || got.Told != tt.want.Told || (got.Err == nil) != (tt.want.Err == nil) || got.Err != nil && got.Err.Error() != tt.want.Err.Error() {
			t.Errorf("%v: %+v, want %+v", tt.value, got, tt.want)
		}
	}
}

// TestChargesOfAnAttempt: the result of an attempt has the charges of its answer.
func TestChargesOfAnAttempt(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"cost":2}`) }))
	defer s.Close()
	res := do(t, newUpstream(t, Config{URL: s.URL, Charges: []string{`body("cost")`}}), post("", "/", ""))
	defer res.Response.Body.Close()
	if len(res.Charges) != 1 || res.Charges[0] != (Charge{Permits: 2, Told: true}) {
		t.Errorf("%+v", res.Charges)
	}
}

// TestChargesOfAnAnswer: each expression has the cost of its limit. A body that goes on tells
// nothing to those that read it.
func TestChargesOfAnAnswer(t *testing.T) {
	u := newUpstream(t, Config{URL: "http://127.0.0.1:1", Charges: []string{`body("cost")`, "", `header("X-Cost")`, `body("none")`}})
	in := NewInput(post("", "/", ""))
	a := &answer{status: 200, header: map[string][]string{"X-Cost": {"3"}}, body: []byte(`{"cost":2}`)}
	want := []Charge{{Permits: 2, Told: true}, {}, {Permits: 3, Told: true}, {}}
	for i, c := range u.charges.of(in, a) {
		if c != want[i] {
			t.Errorf("%d: %+v, want %+v", i, c, want[i])
		}
	}
	a.partial = true
	for i, c := range u.charges.of(in, a) {
		if c.Told != (i == 2) {
			t.Errorf("%d: %+v of a body that goes on", i, c)
		}
	}
	a.partial, a.body = false, []byte("\x00")
	if got := u.charges.of(in, a); len(got) != 4 || got[0].Told || !got[2].Told {
		t.Errorf("%+v of a body that cannot be read", got)
	}
	if got := newUpstream(t, Config{URL: "http://127.0.0.1:1"}).charges.of(in, a); got != nil {
		t.Errorf("%+v, and none were asked for", got)
	}
	for source, text := range map[string]string{"status == 200": "gives a truth value, must be a number", "header": "gives a function, must be a number", "cost": "unknown name cost"} {
		_, err := New(Config{URL: "http://127.0.0.1:1", Charges: []string{"", source}})
		var field *FieldError
		if !errors.As(err, &field) || field.Field != "limits[1].actual_cost" || !strings.Contains(field.Err.Error(), text) {
			t.Errorf("%s: %v", source, err)
		}
	}
}
