package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type job struct {
	Body []byte `json:"body"`
}

func (job) Kind() string { return "job" }

type worker struct {
	river.WorkerDefaults[job]
	handle func()
}

func (w *worker) Work(context.Context, *river.Job[job]) error { w.handle(); return nil }

// openRiver returns River on a PostgreSQL of its own; poll is its poll interval, 0 for
// its default.
func openRiver(poll time.Duration) func(dir string, handle func()) (*queue, error) {
	return func(dir string, handle func()) (*queue, error) {
		addr, stop, err := startPostgres()
		if err != nil {
			return nil, err
		}
		q, err := riverOn("postgres://postgres@"+addr+"/postgres", poll, workers, handle)
		if err != nil {
			stop()
			return nil, err
		}
		end := q.close
		q.close = func() { end(); stop() }
		return q, nil
	}
}

// riverOn returns River on a database, with a number of workers.
func riverOn(url string, poll time.Duration, handling int, handle func()) (*queue, error) {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(url)
	check(err)
	config.MaxConns = workers
	pool, err := pgxpool.NewWithConfig(ctx, config)
	check(err)
	for begin := time.Now(); pool.Ping(ctx) != nil && time.Since(begin) < 20*time.Second; { // it listens before it is ready
		time.Sleep(50 * time.Millisecond)
	}
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	check(err)
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		pool.Close()
		return nil, err
	}
	all := river.NewWorkers()
	river.AddWorker(all, &worker{handle: handle})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: handling, FetchCooldown: poll, FetchPollInterval: poll}}, Workers: all,
		Logger: slog.New(slog.DiscardHandler),
	})
	check(err)
	check(client.Start(ctx))
	return &queue{
		enqueue: func() error { _, err := client.Insert(ctx, job{body}, nil); return err },
		close:   func() { client.Stop(ctx); pool.Close() },
	}, nil
}

// startPostgres makes a database with the default settings and starts its server, which
// refuses to run as root.
func startPostgres() (addr string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench-postgres")
	if err != nil {
		return "", nil, err
	}
	binary, err := exec.LookPath("postgres")
	if err != nil {
		return "", nil, err
	}
	if binary, err = filepath.EvalSymlinks(binary); err != nil { // initdb lies beside it
		return "", nil, err
	}
	as := &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			if u, err = user.Lookup("nobody"); err != nil {
				return "", nil, err
			}
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		check(os.Chown(dir, uid, gid))
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(filepath.Dir(binary), "initdb"), "-D", data, "-U", "postgres", "-A", "trust")
	initdb.SysProcAttr, initdb.Dir = as, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	port := free()
	cmd := exec.Command(binary, "-D", data, "-h", "127.0.0.1", "-p", port, "-k", dir, "-c", "max_connections=100")
	cmd.SysProcAttr, cmd.Dir = as, dir
	end, err := serve(cmd, "127.0.0.1:"+port)
	if err != nil {
		return "", nil, err
	}
	return "127.0.0.1:" + port, func() { end(); os.RemoveAll(dir) }, nil
}
