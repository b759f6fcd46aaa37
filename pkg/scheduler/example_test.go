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
