package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestBreaker sends 600 calls at 50 a second to an upstream that answers only 503 for a
// while. At most 50 of them become unknown; the others wait, and go when it is back.
func TestBreaker(t *testing.T) {
	t.Parallel()
	var bad atomic.Bool
	bad.Store(true)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if bad.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer up.Close()
	p := start(t, up.URL, "limits:", "  - {name: app, calls: 50, window: 1s}")
	const calls = 600
	for i := range calls {
		resp, err := http.Post(p.admin+"/v1/calls", "application/json", strings.NewReader(fmt.Sprintf(`{"upstream":"alipay","method":"POST","path":"/%d"}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	p.until(t, "probing", func() bool {
		return strings.Contains(p.body("/v1/upstreams"), `"state":"tripped"`) && p.states(t)["unknown"] >= 12
	})
	status, metrics := p.body("/v1/upstreams"), p.body("/metrics")
	for _, want := range []string{`"reason":"the outcomes of 10 of the last `, `status 503`} {
		if !strings.Contains(status, want) {
			t.Errorf("the state has no %s: %s", want, status)
		}
	}
	for _, want := range []string{`throttler_breaker_open{upstream="alipay"} 1`, `throttler_upstream_up{upstream="alipay"} 0`, `throttler_pauses_total{cause="failing",limit="",upstream="alipay"} 1`} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("the metrics have no %s", want)
		}
	}
	waits := p.body("/v1/calls?state=waiting&page_size=1")
	if !strings.Contains(p.body("/v1/calls/"+between(waits, `"id":"`, `"`)), `"breaker":"the outcomes of 10 of the last`) {
		t.Errorf("a waiting call does not name the breaker: %s", waits)
	}
	p.logs(t, `msg="the circuit breaker of an upstream opened`)
	bad.Store(false)
	if ended := p.resume(t, "alipay", ""); len(ended) != 1 || ended[0].By != "breaker" || !strings.Contains(ended[0].Reason, "10 of the last ") {
		t.Errorf("the pause of the breaker: %+v", ended)
	}
	var states map[string]int
	p.until(t, "done", func() bool {
		states = p.states(t)
		return states["done"]+states["unknown"] == calls
	})
	t.Logf("%v", states)
	if states["unknown"] > 50 {
		t.Errorf("%v; want at most 50 unknown", states)
	}
}

// between returns the text between two others, empty if they are not there.
func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}
