package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A platform answers requests in place of a real one.
type platform func(r *http.Request) (status int, body string)

func (p platform) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := p(r)
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// config is a platform behind a limit of so many calls per second.
func config(p platform, calls int) scheduler.Config {
	return scheduler.Config{
		Log: slog.New(slog.DiscardHandler),
		Upstreams: map[string]scheduler.Upstream{"pay": {
			Config: upstream.Config{URL: "https://pay.example", Transport: p},
			Limits: []scheduler.Limit{{Name: "app", Calls: calls, Window: time.Second}},
		}},
	}
}

func start(c scheduler.Config) *scheduler.Scheduler {
	s, err := scheduler.New(c)
	if err != nil {
		panic(err)
	}
	return s
}

func refund(n int) scheduler.Request {
	return scheduler.Request{Upstream: "pay", Method: "POST", Target: fmt.Sprintf("/refunds/%d", n)}
}

// Do waits for the slot and for the answer. A call whose slot would come after the
// deadline is refused at once: nothing was sent, and RetryAfter says when to come again.
func ExampleScheduler_Do() {
	s := start(config(func(*http.Request) (int, string) { return 200, "refunded" }, 1))
	defer s.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	for n := range 2 {
		resp, call, err := s.Do(ctx, refund(n))
		var refused *scheduler.Error
		switch {
		case errors.As(err, &refused):
			fmt.Println(refused.Reason, refused.Outcome(), refused.RetryAfter > 0)
		case err != nil:
			fmt.Println(err)
		default:
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			fmt.Println(call.State, string(body))
		}
	}
	// Output:
	// done refunded
	// past_deadline not_executed true
}

// Submit returns as soon as the call is stored; Wait returns its end. The same
// idempotency key returns the same call.
func ExampleScheduler_Submit() {
	s := start(config(func(*http.Request) (int, string) { return 200, "refunded" }, 10))
	defer s.Close()
	ctx := context.Background()

	request := refund(1)
	request.IdempotencyKey = "refund-1"
	call, err := s.Submit(ctx, request)
	if err != nil {
		panic(err)
	}
	again, err := s.Submit(ctx, request)
	if err != nil {
		panic(err)
	}
	end, err := s.Wait(ctx, call.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(again.ID == call.ID, again.Repeated)
	fmt.Println(end.State, len(end.Attempts), string(end.Response.Body))
	// Output:
	// true true
	// done 1 refunded
}

// A call whose outcome is unknown waits for a decision: done and failed end it, not_executed
// sends it again.
func ExampleScheduler_Resolve() {
	asked := 0
	s := start(config(func(*http.Request) (int, string) {
		if asked++; asked == 1 {
			return 502, "bad gateway" // perhaps after the refund
		}
		return 200, "refunded"
	}, 10))
	defer s.Close()
	ctx := context.Background()

	call, err := s.Submit(ctx, refund(1))
	if err != nil {
		panic(err)
	}
	call, _ = s.Wait(ctx, call.ID)
	fmt.Println(call.State)

	// The platform's list of refunds does not have it.
	if call, err = s.Resolve(ctx, call.ID, scheduler.Decision{As: upstream.NotExecuted, Attempt: call.Last().N, Reason: "not in the list of refunds"}); err != nil {
		panic(err)
	}
	call, _ = s.Wait(ctx, call.ID)
	fmt.Println(call.State, len(call.Attempts))
	// Output:
	// unknown
	// done 2
}

// List returns calls by growing id, a page at a time.
func ExampleScheduler_List() {
	s := start(config(func(*http.Request) (int, string) { return 200, "" }, 10))
	defer s.Close()
	ctx := context.Background()

	for n := range 5 {
		call, err := s.Submit(ctx, refund(n))
		if err != nil {
			panic(err)
		}
		s.Wait(ctx, call.ID)
	}
	f := scheduler.Filter{States: []scheduler.State{scheduler.Done}, Max: 3}
	for more := true; more; more = f.After != "" {
		page, err := s.List(ctx, f)
		if err != nil {
			panic(err)
		}
		fmt.Println(len(page.Calls), "calls")
		f.After = page.Next
	}
	// Output:
	// 3 calls
	// 2 calls
}

// A pause holds the calls of an upstream, a limit or a key back, and says so.
func ExampleScheduler_Pause() {
	s := start(config(func(*http.Request) (int, string) { return 200, "" }, 10))
	defer s.Close()
	ctx := context.Background()

	if err := s.Pause(ctx, scheduler.Pause{Upstream: "pay", Until: time.Now().Add(time.Hour)}); err != nil {
		panic(err)
	}
	call, err := s.Submit(ctx, refund(1))
	if err != nil {
		panic(err)
	}
	fmt.Println(call.State, call.WaitingFor.Limit, call.WaitingFor.Paused)

	if err := s.Resume(ctx, "pay", "", ""); err != nil {
		panic(err)
	}
	call, _ = s.Wait(ctx, call.ID)
	fmt.Println(call.State)
	// Output:
	// waiting concurrency true
	// done
}

// Reload changes the limits of a running scheduler; calls that wait go by the new ones.
func ExampleScheduler_Reload() {
	answer := platform(func(*http.Request) (int, string) { return 200, "" })
	s := start(config(answer, 10))
	defer s.Close()
	ctx := context.Background()

	if err := s.Reload(ctx, config(answer, 0)); err != nil {
		fmt.Println(err) // nothing has changed
	}
	if err := s.Reload(ctx, config(answer, 500)); err != nil {
		panic(err)
	}
	limits, err := s.Limits(ctx)
	if err != nil {
		panic(err)
	}
	for _, l := range limits {
		fmt.Printf("%s: %d per %q\n", l.Limit, l.Calls, l.Window)
	}
	// Output:
	// upstreams.pay.limits[0].calls: is 0, must be from 1 to 1000000000
	// concurrency: 1024 per ""
	// app: 500 per "1s"
}
