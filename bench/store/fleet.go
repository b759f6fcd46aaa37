package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/pkg/postgres"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

const aboutFleet = `Calls in PostgreSQL beside River, on one server of one run, with its default settings (fsync on). River polled every
millisecond is the tuned one, also with so many workers that it fetches all that waits at once. The queues take turns, each in a
database of its own; the median counts.`

const manyWorkers = 2000 // of River

// fleet prints how a store in PostgreSQL compares with River.
func fleet() {
	say("# Calls in PostgreSQL, measured\n\n%s; %d cores, %s; `make bench-fleet` writes this page.\n\n%s\n\n", time.Now().UTC().Format("2006-01-02 15:04 MST"), cores(), processor(), aboutFleet)
	addr, stop, err := startPostgres()
	check(err)
	defer stop()
	admin := connect(addr, "postgres")
	defer admin.Close(context.Background())
	databases := 0
	database := func() string {
		databases++
		name := fmt.Sprint("bench", databases)
		_, err := admin.Exec(context.Background(), "CREATE DATABASE "+name)
		check(err)
		return "postgres://postgres@" + addr + "/" + name
	}
	beside(database)
	accepts(database)
}

// connect connects to a server that may still be starting.
func connect(addr, database string) *pgx.Conn {
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		conn, err := pgx.Connect(context.Background(), "postgres://postgres@"+addr+"/"+database)
		if err == nil {
			return conn
		}
		if time.Since(begin) > 20*time.Second {
			check(err)
		}
	}
}

// beside prints enqueue to finish of both.
func beside(database func() string) {
	var trips float64
	contenders := []contender{
		{"Throttler", "synced", "", func(_ string, handle func()) (*queue, error) { return openFleet(database(), handle, &trips) }},
		{"Throttler, each with an idempotency key", "synced", "", func(_ string, handle func()) (*queue, error) {
			q, err := openFleet(database(), handle, new(float64))
			if err == nil {
				q.enqueue = q.keyed
			}
			return q, err
		}},
		{"River", "synced", "", func(_ string, handle func()) (*queue, error) { return riverOn(database(), 0, workers, handle) }},
		{"River, polled every ms", "synced", "", func(_ string, handle func()) (*queue, error) {
			return riverOn(database(), time.Millisecond, workers, handle)
		}},
		{fmt.Sprintf("River, polled every ms, %d workers", manyWorkers), "synced", "", func(_ string, handle func()) (*queue, error) {
			return riverOn(database(), time.Millisecond, manyWorkers, handle)
		}},
	}
	rates, p50s, p99s := make([][]float64, len(contenders)), make([][]time.Duration, len(contenders)), make([][]time.Duration, len(contenders))
	for range turns {
		for i, c := range contenders {
			rate, p50, p99, err := c.measure("")
			check(err)
			rates[i], p50s[i], p99s[i] = append(rates[i], rate), append(p50s[i], p50), append(p99s[i], p99)
		}
	}
	say("## Enqueue to finish\n\n%d jobs of 450 bytes that do nothing, %d enqueue and %d handle at once; then one at a time.\n\n", *jobs, workers, workers)
	say("| queue | jobs/s | idle: enqueue to handler p50 | p99 |\n| --- | --- | --- | --- |\n")
	for i, c := range contenders {
		say("| %s | %.0f | %v | %v |\n", c.name, median(rates[i]), median(p50s[i]), median(p99s[i]))
	}
	fastest := 0.0
	for i, c := range contenders {
		if strings.HasPrefix(c.name, "River") {
			fastest = max(fastest, median(rates[i]))
		}
	}
	ratio := median(rates[0]) / fastest
	say("\nRatio to the fastest River: %.2f, must be ≥ 2 (%s). Idle p50 must be ≤ 5 ms (%s). Round trips to the server for each life of a call, at %d callers: %.3f, must be ≤ 0.2 (%s).\n\n",
		ratio, verdict(ratio >= 2), verdict(median(p50s[0]) <= 5*time.Millisecond), workers, trips, verdict(trips <= 0.2))
}

// accepts prints the rate at which the store accepts calls.
func accepts(database func() string) {
	say("## Accepts\n\n| callers | accepts/s | calls/s (accept, intent and outcome) |\n| --- | --- | --- |\n")
	d, err := postgres.Open(context.Background(), database(), postgres.Options{Log: slog.New(slog.DiscardHandler)})
	check(err)
	defer d.Close()
	_, err = d.Recover(context.Background(), 0, nil)
	check(err)
	var seq atomic.Int64
	for text := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(text)
		check(err)
		var accepted, whole []float64
		for range turns {
			accepted = append(accepted, rate(n, func(int64) { one(d, seq.Add(1), false) }))
			whole = append(whole, rate(n, func(int64) { one(d, seq.Add(1), true) }))
		}
		say("| %d | %.0f | %.0f |\n", n, median(accepted), median(whole))
	}
}

// openFleet returns Throttler over a database. Close stores the round trips for each job.
func openFleet(url string, handle func(), trips *float64) (*queue, error) {
	d, err := postgres.Open(context.Background(), url, postgres.Options{Log: slog.New(slog.DiscardHandler), Name: uuid.NewString()})
	if err != nil {
		return nil, err
	}
	begun, handled := d.Trips(), atomic.Int64{}
	s, err := throttler(d, func() {
		if handled.Add(1) == int64(*jobs) {
			*trips = float64(d.Trips()-begun) / float64(*jobs)
		}
		handle()
	})
	if err != nil {
		return nil, err
	}
	return submitter(s), nil
}

// submitter returns the queue of a scheduler.
func submitter(s *scheduler.Scheduler) *queue {
	return &queue{
		keyed: func() error {
			_, err := s.Submit(context.Background(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/", Body: body, IdempotencyKey: uuid.NewString()})
			return err
		},
		enqueue: func() error {
			_, err := s.Submit(context.Background(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/", Body: body})
			return err
		},
		close: func() { check(s.Close()) },
	}
}
