package server

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// pausedByAnswers returns a rig whose limit day is paused by the first answer, key by key.
func pausedByAnswers(t *testing.T) *rig {
	t.Helper()
	u := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 5, Window: time.Second}, {Name: "day", PerKey: "path", Calls: 5, Window: time.Second}}}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{Limit: "day", For: time.Hour}}}
	return newRig(t, u, Refusal{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
}

// pause asks for a pause, and returns it.
func (r *rig) pause(t *testing.T, body string) (p api.Pause) {
	t.Helper()
	resp, got := send(t, "POST", r.admin.URL+"/v1/pauses", body)
	if err := json.Unmarshal([]byte(got), &p); err != nil || resp.StatusCode != 201 {
		t.Fatalf("pause %s: %d %s", body, resp.StatusCode, got)
	}
	return p
}

// pauses returns those that hold now.
func (r *rig) pauses(t *testing.T) []api.Pause {
	t.Helper()
	return read[api.Pauses](t, r.admin.URL+"/v1/pauses").Pauses
}

// TestPausesSayWhy: a pause, the state of an upstream, its waiting calls and refusals say by
// whom and why they are paused, and since when; a pause that would shorten another one is
// refused.
func TestPausesSayWhy(t *testing.T) {
	r := pausedByAnswers(t)
	matches := func(name, text, pattern string) {
		t.Helper()
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("%s: %s; want %s", name, text, pattern)
		}
	}
	limit := r.pause(t, `{"upstream":"pay","for":"1h","limit":"app","reason":"the quota is shared today"}`)
	if limit.By != "person" || limit.Who != "anyone" || limit.Reason != "the quota is shared today" || limit.Limit != "app" || time.Since(limit.Since.Time) > time.Minute {
		t.Errorf("a pause of a limit: %+v", limit)
	}
	_, upstreams := send(t, "GET", r.admin.URL+"/v1/upstreams", "")
	const since = `since [-0-9T:.]+Z`
	matches("a paused limit", upstreams, `"state":"up".*"pauses":\[{"limit":"app","until":"[^"]+","pause":"by anyone, `+since+`: the quota is shared today"}\]`)

	all := r.pause(t, `{"upstream":"pay","for":"1h","reason":"maintenance"}`)
	if all.Limit != "" || all.ID == limit.ID || len(r.pauses(t)) != 2 {
		t.Errorf("a pause of all: %+v, among %+v", all, r.pauses(t))
	}
	if again := r.pause(t, `{"upstream":"pay","for":"2h","limit":"concurrency","reason":"maintenance"}`); !again.Until.After(all.Until.Time.Add(50*time.Minute)) || len(r.pauses(t)) != 2 {
		t.Errorf("a longer pause of all: %+v, after %+v", again, all)
	}
	_, upstreams = send(t, "GET", r.admin.URL+"/v1/upstreams", "")
	matches("a paused upstream", upstreams, `"state":"paused","paused_until":"[^"]+","cause":"operator","reason":"maintenance","since":"`)
	matches("held", r.submit(t, `{"upstream":"pay","method":"GET","target":"/"}`).WaitingFor.Pause, `^by anyone, `+since+`: maintenance$`)
	resp, body := send(t, "GET", r.data.URL+"/", "", "Throttler-Max-Wait: 1s")
	if resp.StatusCode != 503 {
		t.Errorf("refused: %d", resp.StatusCode)
	}
	matches("refused", body, `; it was paused by anyone, `+since+`: maintenance`)
	resp, body = send(t, "POST", r.admin.URL+"/v1/pauses", `{"upstream":"pay","for":"1m"}`)
	if resp.StatusCode != 409 {
		t.Errorf("a shorter pause: %d", resp.StatusCode)
	}
	matches("a shorter pause", body, `is paused until [^ ]+ already, and not only until [^ ]+; resume it first to shorten the pause \(by anyone, `+since+`: maintenance`)
}

// TestPausesEnd: each pause ends once, that of an operator and that of an answer; the audit has all of it.
func TestPausesEnd(t *testing.T) {
	r := pausedByAnswers(t)
	limit := r.pause(t, `{"upstream":"pay","for":"1h","limit":"app","reason":"shared"}`)
	all := r.pause(t, `{"upstream":"pay","for":"1h","reason":"maintenance"}`)
	call := r.submit(t, `{"upstream":"pay","method":"GET","target":"/"}`)
	end := func(id string, status int, want string) {
		t.Helper()
		if resp, body := send(t, "DELETE", r.admin.URL+"/v1/pauses/"+id+"?reason=over", ""); resp.StatusCode != status || !strings.Contains(body, want) {
			t.Errorf("end of %s: %d %s, want %d %s", id, resp.StatusCode, body, status, want)
		}
	}
	end(limit.ID, 200, `"limit":"app"`)
	if st := r.upstream(t); st.State != "paused" {
		t.Errorf("without the pause of the limit, the upstream is %s", st.State)
	}
	end(all.ID, 200, `"reason":"maintenance"`)
	end(all.ID, 404, "or it has ended")

	r.until(t, "limited", func(u scheduler.UpstreamStatus) bool { return len(u.Pauses) > 0 })
	p := r.pauses(t)
	if len(p) != 1 || p[0].By != "answer" || p[0].Status != 429 || p[0].Reason != "status == 429" || p[0].Limit != "day" || p[0].Key != "/" || p[0].Who != "" {
		t.Fatalf("by an answer: %+v", p)
	}
	second := r.submit(t, `{"upstream":"pay","method":"GET","target":"/"}`)
	if f := second.WaitingFor; f == nil || !regexp.MustCompile(`^by an answer of the upstream, since [-0-9T:.]+Z: status == 429$`).MatchString(f.Pause) {
		t.Errorf("held by %+v", f)
	}
	end(p[0].ID, 200, `"by":"answer"`)
	r.until(t, "limited again", func(scheduler.UpstreamStatus) bool {
		c := read[api.Call](t, r.admin.URL+"/v1/calls/"+call.ID)
		return len(c.Attempts) == 2
	})

	log := r.audit(t, "")
	want := []string{"resume", "resume", "resume", "pause", "pause"}
	for i, record := range log {
		if i >= len(want) || record.Action != want[i] || record.Actor != "anyone" || record.Role != "admin" || !strings.HasPrefix(record.Via, "anyone 127.0.0.1:") || record.Upstream != "pay" {
			t.Errorf("record %d: %+v", i, record)
		}
	}
	if len(log) != len(want) || log[3].After != "until "+all.Until.Format(time.RFC3339) || log[3].Reason != "maintenance" || log[0].Limit != "day" || log[0].Key != "/" || log[0].Before != "paused until "+p[0].Until.Format(time.RFC3339) || log[0].Reason != "over" {
		t.Errorf("audit: %+v", log)
	}
}

// TestBreakerIsAPause: the pause of an open circuit breaker names why it is open, and its end
// closes the breaker.
func TestBreakerIsAPause(t *testing.T) {
	u := scheduler.Upstream{}
	u.URL = "http://127.0.0.1:1" // nothing listens there
	r := newRig(t, u, Refusal{}, nil)
	r.submit(t, `{"upstream":"pay","method":"GET","target":"/"}`)
	r.until(t, "down", func(u scheduler.UpstreamStatus) bool { return u.State == "down" })
	p := r.pauses(t)
	if len(p) != 1 || p[0].By != "breaker" || p[0].Limit != "" || !strings.Contains(p[0].Reason, "127.0.0.1:1") || p[0].Who != "" {
		t.Fatalf("by the breaker: %+v", p)
	}
	ended := false
	for range 100 { // probes open it anew, as another pause
		for _, p := range r.pauses(t) {
			resp, body := send(t, "DELETE", r.admin.URL+"/v1/pauses/"+p.ID, "")
			if resp.StatusCode != 200 && resp.StatusCode != 404 {
				t.Fatalf("end: %d %s", resp.StatusCode, body)
			}
			ended = ended || resp.StatusCode == 200 && strings.Contains(body, `"by":"breaker"`)
		}
		if ended {
			return
		}
	}
	t.Error("the pause of a breaker never ended")
}
