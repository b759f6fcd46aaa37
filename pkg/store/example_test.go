package store_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
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
	s.Pause(context.Background(), scheduler.Pause{Upstream: "pay", Until: time.Now().Add(time.Hour)}) // so that it is not sent yet
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

// A durable queue: 200 refunds and a handler of their ends. A call that was handed over
// before is known by its key, and an end that was not handled comes again in the next
// process, so the program may crash anywhere and run again.
func Example_queue() {
	platform := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer platform.Close()
	dir, err := os.MkdirTemp("", "throttler")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	db, err := store.Open(filepath.Join(dir, "throttler.db"), store.Options{})
	if err != nil {
		panic(err)
	}
	var pay scheduler.Upstream
	pay.URL, pay.Limits = platform.URL, []scheduler.Limit{{Name: "app", Calls: 2000, Window: time.Second}}
	var booked sync.Map // a table of the program's own database, say
	all := make(chan struct{}, 200)
	s, err := scheduler.New(scheduler.Config{
		Store: db, Upstreams: map[string]scheduler.Upstream{"pay": pay},
		Ended: func(_ context.Context, call *scheduler.Call) error {
			if _, twice := booked.Swap(call.ID, call.State); !twice { // at least once: it may come again
				all <- struct{}{}
			}
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	for n := range 200 {
		if _, err := s.Submit(context.Background(), scheduler.Request{
			Upstream: "pay", Method: "POST", Target: fmt.Sprint("/refunds/", n), IdempotencyKey: fmt.Sprint("refund-", n),
		}); err != nil {
			panic(err)
		}
	}
	for range 200 {
		<-all
	}
	fmt.Println("all are booked")
	// Output: all are booked
}
