package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// An ordinary HTTP client of two APIs, without a file: each request waits for the limits of
// the API that its URL names. The fields of an upstream that are set one by one need no
// import of package upstream.
func ExampleScheduler_Transport() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()

	var pay, ship scheduler.Upstream
	pay.URL, pay.Limits = api.URL+"/pay", []scheduler.Limit{{Name: "app", Calls: 100, Window: time.Second}}
	ship.URL, ship.Limits = api.URL+"/ship", []scheduler.Limit{{Name: "app", Calls: 5, Window: time.Second}}
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": pay, "ship": ship}})
	if err != nil {
		panic(err)
	}
	defer s.Close()

	client := &http.Client{Transport: s.Transport("")}
	for _, to := range []string{"/pay/refunds", "/ship/parcels", "/elsewhere"} {
		resp, err := client.Get(api.URL + to)
		if err != nil {
			fmt.Println(errors.Is(err, scheduler.NotFound)) // the error lists the URLs
			continue
		}
		resp.Body.Close()
		call, err := s.Get(context.Background(), resp.Header.Get("Throttler-Call"))
		if err != nil {
			panic(err)
		}
		fmt.Println(resp.Header.Get("Throttler-Outcome"), "by", call.Upstream)
	}
	// Output:
	// done by pay
	// done by ship
	// true
}

// Ended handles the end of each submitted call until it returns nil. With a store of package
// store it does so over restarts and crashes.
func ExampleConfig_ended() {
	c := config(func(*http.Request) (int, string) { return 200, "refunded" }, 10)
	closed, booked := true, make(chan struct{})
	c.Ended = func(_ context.Context, call *scheduler.Call) error {
		if closed {
			closed = false
			return errors.New("the books are closed") // the end comes again, in a second at most
		}
		fmt.Println(call.State, string(call.Response.Body))
		close(booked)
		return nil
	}
	s := start(c)
	defer s.Close()
	if _, err := s.Submit(context.Background(), refund(1)); err != nil {
		panic(err)
	}
	<-booked
	// Output:
	// done refunded
}

// Observe gets events as they happen, for metrics and logs.
func ExampleConfig_observe() {
	c := config(func(*http.Request) (int, string) { return 200, "" }, 10)
	c.Observe = func(e scheduler.Event) { fmt.Println(e.Kind, e.Call.Upstream) }
	s := start(c)
	defer s.Close()
	resp, _, err := s.Do(context.Background(), refund(1))
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	// Output:
	// accepted pay
	// sending pay
	// attempt pay
	// ended pay
}

// An error has a reason for programs, a text for people, and the outcome: after
// not_executed a call may be made again, after unknown it may have been executed.
func ExampleError() {
	s := start(config(func(*http.Request) (int, string) { return 200, "" }, 10))
	defer s.Close()
	ctx := context.Background()
	if err := s.Pause(ctx, scheduler.Pause{Upstream: "pay", Until: time.Now().Add(time.Hour)}); err != nil {
		panic(err)
	}
	_, _, err := s.Do(ctx, refund(1)) // waits for max_wait at most

	var why *scheduler.Error
	if errors.As(err, &why) {
		fmt.Println(why.Reason, why.Outcome(), why.RetryAfter > 59*time.Minute)
	}
	fmt.Println(errors.Is(err, scheduler.Paused), errors.Is(err, scheduler.Full))
	_, err = s.Get(ctx, "1234")
	fmt.Println(err)
	// Output:
	// paused not_executed true
	// true false
	// throttler: call "1234" is not known; it may have been forgotten some time after it finished
}

// Cancel takes back a call that has not been sent.
func ExampleScheduler_Cancel() {
	s := start(config(func(*http.Request) (int, string) { return 200, "" }, 10))
	defer s.Close()
	ctx := context.Background()

	later := refund(1)
	later.NotBefore = time.Now().Add(time.Hour)
	call, err := s.Submit(ctx, later)
	if err != nil {
		panic(err)
	}
	call, err = s.Cancel(ctx, call.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(call.State, call.Outcome())
	_, err = s.Cancel(ctx, call.ID)
	fmt.Println(errors.Is(err, scheduler.WrongState))
	// Output:
	// cancelled not_executed
	// true
}

// Status tells how an upstream stands.
func ExampleScheduler_Status() {
	s := start(config(func(*http.Request) (int, string) { return 200, "" }, 10))
	defer s.Close()
	ctx := context.Background()

	until := time.Now().Add(time.Hour)
	if err := s.Pause(ctx, scheduler.Pause{Upstream: "pay", Until: until}); err != nil {
		panic(err)
	}
	for n := range 3 {
		if _, err := s.Submit(ctx, refund(n)); err != nil {
			panic(err)
		}
	}
	st, err := s.Status(ctx, "pay")
	if err != nil {
		panic(err)
	}
	fmt.Println(st.State, st.PausedUntil.Equal(until), "by an", st.Cause, st.Waiting, "waiting")
	// Output:
	// paused true by an operator 3 waiting
}
