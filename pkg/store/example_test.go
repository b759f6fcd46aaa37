package store_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A refund that one process takes and another one sends.
func Example() {
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"code":"10000"}`)
	}))
	defer platform.Close()
	dir, err := os.MkdirTemp("", "throttler")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	start := func() *scheduler.Scheduler {
		db, err := store.Open(filepath.Join(dir, "throttler.db"), store.Options{})
		if err != nil {
			panic(err)
		}
		s, err := scheduler.New(scheduler.Config{Store: db, Upstreams: map[string]scheduler.Upstream{
			"pay": {Config: upstream.Config{URL: platform.URL}},
		}})
		if err != nil {
			panic(err)
		}
		return s
	}
	ctx := context.Background()
	s := start()
	s.Pause(context.Background(), "pay", "", "", time.Now().Add(time.Hour)) // so that it is not sent yet
	call, err := s.Submit(ctx, scheduler.Request{Upstream: "pay", Method: "POST", Target: "/refunds", Body: []byte(`{"amount":2}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Close()

	s = start()
	defer s.Close()
	s.Resume(context.Background(), "pay", "", "") // a pause outlives the process as well
	call, err = s.Wait(ctx, call.ID)
	fmt.Println(call.State, string(call.Response.Body), err)
	// Output: done {"code":"10000"} <nil>
}
