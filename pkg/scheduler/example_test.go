package scheduler_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Five refunds against 100 calls per second: one through an ordinary HTTP client that
// waits for the answer, four submitted without waiting.
func Example() {
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"code":"10000"}`)
	}))
	defer platform.Close()

	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": {
		Config: upstream.Config{URL: platform.URL},
		Limits: []scheduler.Limit{{Name: "app", Calls: 100, Window: time.Second}},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	client := &http.Client{Transport: s.Transport("pay")}
	resp, err := client.Post("https://pay.example/refunds", "application/json", strings.NewReader(`{"amount":1}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println("answered:", resp.StatusCode)

	ctx := context.Background()
	for range 4 {
		call, err := s.Submit(ctx, scheduler.Request{Upstream: "pay", Method: "POST", Target: "/refunds", Body: []byte(`{"amount":2}`)})
		if err != nil {
			fmt.Println(err)
			return
		}
		call, _ = s.Wait(ctx, call.ID)
		fmt.Println("submitted:", call.State)
	}
	// Output:
	// answered: 200
	// submitted: done
	// submitted: done
	// submitted: done
	// submitted: done
}

// A simulation tells the times of sending without waiting for them.
func ExampleSimulation() {
	api := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 2, Window: time.Second}}}
	api.URL = "https://api.example.com"
	begin := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	s, err := scheduler.NewSimulation(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": api}}, begin)
	if err != nil {
		panic(err)
	}
	s.RoundTrip = func(*scheduler.Arrival) time.Duration { return 50 * time.Millisecond }
	s.Observe = func(d scheduler.Departure) { fmt.Println("came at", d.ArrivedAt, "goes at", d.At) }
	app := &scheduler.Route{Keys: map[string]string{"app": ""}}
	for i := range 4 {
		s.Arrive(time.Duration(i)*100*time.Millisecond, scheduler.Arrival{Upstream: "api", Route: app})
	}
	s.Advance(time.Minute)
	// Output:
	// came at 0s goes at 0s
	// came at 100ms goes at 100ms
	// came at 200ms goes at 1.05s
	// came at 300ms goes at 1.15s
}
