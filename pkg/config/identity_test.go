package config

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestIdentity: the expressions of numbers, identity and ends reach the scheduler, and a
// change of one is in the difference.
func TestIdentity(t *testing.T) {
	parse := func(text string) *Config {
		t.Helper()
		c, err := Parse([]byte("upstreams: {shop: {url: 'http://shop.test'" + text + "}}"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	none, some := parse(""), parse(`, numbers: {order: 'json("no")', Refund: 'param("r")'}, identity: 'json("no")', ends: 'param("c")'`)
	u := some.Scheduler.Upstreams["shop"]
	if want := map[string]string{"order": `json("no")`, "refund": `param("r")`}; u.Identity != `json("no")` || u.Ends != `param("c")` || !maps.Equal(u.Numbers, want) {
		t.Errorf("identity %q, ends %q, numbers %q", u.Identity, u.Ends, u.Numbers)
	}
	want := []string{"upstreams.shop.ends: new (value hidden)", "upstreams.shop.identity: new (value hidden)", "upstreams.shop.numbers.order: new (value hidden)", "upstreams.shop.numbers.refund: new (value hidden)"}
	if lines := lines(none.Diff(some)); !slices.Equal(lines, want) {
		t.Errorf("the difference is %q", lines)
	}
	preset := func(more string) (identity, ends string) {
		u := parse(", preset: alipay" + more).Scheduler.Upstreams["shop"]
		return u.Identity, u.Ends
	}
	if identity, ends := preset(""); identity == "" || ends == "" {
		t.Errorf("the preset has identity %q and ends %q", identity, ends)
	}
	if identity, ends := preset(`, identity: ""`); identity+ends != "" {
		t.Errorf("without the preset's identity: %q, ends %q", identity, ends)
	}
	if identity, ends := preset(`, ends: ""`); identity == "" || ends != "" {
		t.Errorf("without the preset's ends: %q, ends %q", identity, ends)
	}
	if identity, ends := preset(`, identity: 'param("no")'`); identity == "" || ends != "" {
		t.Errorf("with an identity of its own: %q, ends %q", identity, ends)
	}
	if identity, ends := preset(`, identity: 'param("no")', ends: 'param("c")'`); identity == "" || ends != `param("c")` {
		t.Errorf("with names of its own: %q, ends %q", identity, ends)
	}
	warned := parse(`, preset: alipay, identity: 'param("no")', asks: "", concurrency: 1`).Warnings
	if len(warned) != 1 || !strings.Contains(warned[0].Error(), "upstreams.shop.identity: is not the preset's, so the preset's ends does not count") {
		t.Errorf("warnings %v", warned)
	}
	if u := parse(`, preset: alipay, numbers: {order: ""}`).Scheduler.Upstreams["shop"]; u.Numbers["order"] != "" || len(u.Numbers) == 0 {
		t.Errorf("without the preset's order: numbers %q", u.Numbers)
	}
	if u := parse(`, preset: alipay, identity: ""`).Scheduler.Upstreams["shop"]; u.Asks != "" {
		t.Errorf("without the preset's identity: asks %q", u.Asks)
	}
	if u := parse(`, numbers: {}, identity: "", ends: ""`).Scheduler.Upstreams["shop"]; u.Identity+u.Ends != "" || len(u.Numbers) != 0 {
		t.Errorf("nothing is %q, %q", u.Identity, u.Numbers)
	}
}

// TestIdentityOfAntomsSDK: Antom's SDK for Go (alipay/global-open-sdk-go, b042a77) sends its Content-Type twice, the second time with a charset.
func TestIdentityOfAntomsSDK(t *testing.T) {
	c, err := Parse([]byte("upstreams: {antom: {preset: antom, url: 'http://antom.test'}}"))
	if err != nil {
		t.Fatal(err)
	}
	identity, err := upstream.Compile(c.Scheduler.Upstreams["antom"].Identity, upstream.Key)
	if err != nil {
		t.Fatal(err)
	}
	of := func(contentType ...string) string {
		t.Helper()
		got, err := identity.Key(upstream.NewInput(&upstream.Request{
			Method: "POST", Target: "/ams/api/v1/payments/pay", Body: []byte(`{"paymentRequestId":"P1"}`),
			Header: http.Header{"Client-Id": {"C1"}, "Content-Type": contentType},
		}))
		if err != nil {
			t.Errorf("%q: %v", contentType, err)
		}
		return got
	}
	once := of("application/json")
	if twice := of("application/json", "application/json; charset=UTF-8"); !strings.Contains(once, "P1") || twice != once {
		t.Errorf("identity %q, and %q of the SDK", once, twice)
	}
}
