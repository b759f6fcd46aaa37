package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestMetrics(t *testing.T) {
	u := scheduler.Upstream{
		Config: upstream.Config{Outcomes: []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}, {When: `status == 418 and body("n") > 0`, Is: upstream.Failed}}},
		Limits: []scheduler.Limit{{Name: "app", PerKey: `param("app")`, Concurrency: 1}},
	}
	r := newRig(t, u, Refusal{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/limited":
			w.WriteHeader(429)
		case "/odd":
			w.WriteHeader(418)
			io.WriteString(w, `{"n":"1"}`)
		}
	})
	begin := testutil.ToFloat64(r.metrics.refused.WithLabelValues("pay", "bad_key"))
	for _, request := range []string{"/?app=1", "/limited?app=1", "/odd?app=1", "/", "/?app="} {
		send(t, "GET", r.data.URL+request, "")
	}
	send(t, "POST", r.admin.URL+"/v1/calls", `{"upstream":"pay","method":"GET","path":"/"}`)
	send(t, "POST", r.admin.URL+"/v1/calls", `{"upstream":"nope","method":"GET","path":"/"}`)
	send(t, "POST", r.admin.URL+"/v1/calls", `{`)
	now := time.Now() // an answer that is about its call alone, such as a locked object, is no limit
	r.metrics.Observe(scheduler.Event{
		Kind: scheduler.EventAttempt, Alone: true, Call: &scheduler.Call{Upstream: "pay", AcceptedAt: now},
		Attempt: &scheduler.Attempt{SentAt: now, EndedAt: now, Status: 409, Outcome: upstream.NotExecuted},
	})
	for _, tt := range []struct {
		name   string
		labels string
		want   float64
	}{
		{"throttler_calls_accepted_total", `{upstream="pay"}`, 3},
		{"throttler_uncomputable_total", `{rule="outcomes[1]",upstream="pay"}`, 1},
		{"throttler_calls_refused_total", `{reason="bad_key",upstream="pay"}`, 3},
		{"throttler_calls_refused_total", `{reason="full",upstream="pay"}`, 0},
		{"throttler_calls_refused_total", `{reason="not_found",upstream=""}`, 1},
		{"throttler_calls_refused_total", `{reason="bad_request",upstream=""}`, 1},
		{"throttler_calls_ended_total", `{state="done",upstream="pay"}`, 1},
		{"throttler_calls_ended_total", `{state="unknown",upstream="pay"}`, 1},
		{"throttler_attempts_limited_total", `{upstream="pay"}`, 1},
		{"throttler_pauses_total", `{cause="answer",limit="",upstream="pay"}`, 1},
		{"throttler_pauses_total", `{cause="answer",limit="app",upstream="pay"}`, 0},
	} {
		_, page := send(t, "GET", r.admin.URL+"/metrics", "")
		if want := tt.name + tt.labels + " " + string('0'+byte(tt.want)) + "\n"; !strings.Contains(page, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
	if begin != 0 || strings.Contains(r.logs.String(), "nope") {
		t.Errorf("refusals began at %v; the log:\n%s", begin, r.logs)
	}
	if problems, err := testutil.GatherAndLint(r.metrics); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}
