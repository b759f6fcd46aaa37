package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/seed-30fe103d/throttler/internal/pgtest"
	"github.com/seed-30fe103d/throttler/pkg/postgres"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// startServer starts a server, and returns the URL of an empty database there.
func startServer() (url string, stop func() error, err error) {
	server, err := pgtest.Start()
	if err != nil {
		return "", nil, err
	}
	if url, err = server.NewDatabase(); err != nil {
		return "", nil, errors.Join(err, server.Close())
	}
	return url, server.Close, nil
}

// A refund that one program takes, and another one sends.
func Example() {
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"code":"10000"}`)
	}))
	defer platform.Close()
	url, stop, err := startServer()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	ctx := context.Background()
	start := func() *scheduler.Scheduler {
		db, err := postgres.Open(ctx, url, postgres.Options{Wait: true, Log: slog.New(slog.DiscardHandler)}) // waits while the other program has the calls
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
	s := start()
	s.Pause(ctx, scheduler.Pause{Upstream: "pay", Until: time.Now().Add(time.Hour)}) // so that it is not sent yet
	call, err := s.Submit(ctx, scheduler.Request{Upstream: "pay", Method: "POST", Target: "/refunds", Body: []byte(`{"amount":2}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Close()

	s = start()
	defer s.Close()
	s.Resume(ctx, "pay", "", "")
	call, err = s.Wait(ctx, call.ID)
	fmt.Println(call.State, string(call.Response.Body), err)
	// Output: done {"code":"10000"} <nil>
}

// A program that has the calls, loses them, and takes them over again, until it is told to stop.
func ExampleMember_Claim() {
	platform := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer platform.Close()
	url, stopServer, err := startServer()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stopServer()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m, err := postgres.Join(ctx, url, postgres.Options{Wait: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Leave()
	for ctx.Err() == nil {
		db, err := m.Claim(ctx) // waits for its turn
		if err != nil {
			fmt.Println(err)
			return
		}
		s, err := scheduler.New(scheduler.Config{Store: db, Upstreams: map[string]scheduler.Upstream{
			"pay": {Config: upstream.Config{URL: platform.URL}},
		}})
		if errors.Is(err, postgres.ErrTermOver) { // before the calls were recovered
			db.Close()
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, _, err := s.Do(ctx, scheduler.Request{Upstream: "pay", Method: "POST", Target: "/refunds"})
		if err == nil {
			fmt.Println(resp.Status)
			resp.Body.Close()
		}
		time.AfterFunc(0, stop) // by a signal, in a real program
		select {
		case <-ctx.Done():
		case <-s.Failed():
		}
		if err := s.Close(); err != nil && !errors.Is(err, postgres.ErrTermOver) {
			fmt.Println(err)
			return
		}
	}
	// Output: 200 OK
}
