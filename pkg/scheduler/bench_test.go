package scheduler

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

type immediate struct{}

func (immediate) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}

// BenchmarkDo is what a call costs when nobody waits: no network in it.
func BenchmarkDo(b *testing.B) {
	u := Upstream{Limits: []Limit{
		{Name: "app", PerKey: `query("app_id")`, Calls: 1 << 30, Window: time.Second},
		{Name: "method", When: `query("method") == "refund"`, PerKey: `query("app_id")`, Calls: 1 << 30, Window: time.Second},
	}}
	u.URL, u.Transport = "http://api.test", immediate{}
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	do := func() {
		resp, _, err := s.Do(b.Context(), Request{Upstream: "api", Target: "/?app_id=1&method=refund", Method: "POST"})
		if err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
	b.Run("one caller", func(b *testing.B) {
		for b.Loop() {
			do()
		}
	})
	b.Run("64 callers", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				do()
			}
		})
	})
}
