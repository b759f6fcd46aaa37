package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A client sends two requests through a data listener to an API that allows one
// per hour, and will not wait that long.
func Example() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "paid")
	}))
	defer api.Close()

	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": {
		Config: upstream.Config{URL: api.URL},
		Limits: []scheduler.Limit{{Name: "app", Calls: 1, Window: time.Hour}},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	listener := httptest.NewServer(&server.Data{Scheduler: s, Upstream: "pay", Admin: "http://127.0.0.1:9090"})
	defer listener.Close()

	for range 2 {
		resp, err := http.Get(listener.URL + "/charges")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("Throttler-Outcome"))
	}
	// Output:
	// 200 done
	// 429 not_executed
}
