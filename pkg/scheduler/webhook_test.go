package scheduler

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestCallbacks(t *testing.T) {
	var hooks []*http.Request
	var bodies []string
	shop := Callback{}
	shop.URL, shop.Signer = "https://shop.test/hooks/?t=1", stamper{}
	answers := []int{500, 429, 200}
	shop.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		b, _ := io.ReadAll(r.Body)
		hooks, bodies = append(hooks, r), append(bodies, string(b))
		status := 200
		if len(hooks) <= len(answers) {
			status = answers[len(hooks)-1]
		}
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	})
	u := Upstream{Callbacks: map[string]Callback{"shop": shop}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n == 2 {
				return answer{status: 500}
			}
			return answer{body: "paid"}
		}
		if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/", Callback: "elsewhere"}); reason(err) != BadRequest {
			t.Errorf("a callback that nobody configured: %v", err)
		}
		if _, err := s.Submit(t.Context(), Request{Upstream: "api/callbacks/shop", Target: "/"}); reason(err) != NotFound {
			t.Errorf("a callback as an upstream: %v", err)
		}
		c := wait(t, s, submit(t, s, Request{Callback: "shop"}).ID)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(hooks) != 3 {
			t.Fatalf("%d webhooks, want one sent three times", len(hooks))
		}
		var got struct {
			Type string
			Data webhookCall
		}
		if err := json.Unmarshal([]byte(bodies[2]), &got); err != nil || got.Type != "call.done" || got.Data.ID != c.ID || string(got.Data.Response.Body) != "paid" {
			t.Errorf("webhook %s: %v", bodies[2], err)
		}
		if r := hooks[2]; bodies[0] != bodies[2] || r.URL.RequestURI() != "/hooks/?t=1" || r.Method != "POST" || hooks[0].Header.Get("Signed") == r.Header.Get("Signed") {
			t.Errorf("webhook %s %s %v, want the same, signed anew", r.Method, r.URL, r.Header)
		}

		hooks, bodies, answers = nil, nil, nil
		c = wait(t, s, submit(t, s, Request{Callback: "shop"}).ID)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.Failed}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(bodies) != 2 || !strings.Contains(bodies[0], `"call.unknown"`) || !strings.Contains(bodies[1], `"call.failed"`) {
			t.Errorf("webhooks %q, want call.unknown and call.failed", bodies)
		}
	})
}
