package main

import (
	"context"
	"os/exec"

	"github.com/hibiken/asynq"
)

// openAsynq returns asynq on a Redis of its own.
func openAsynq(fsync string) func(dir string, handle func()) (*queue, error) {
	return func(dir string, handle func()) (*queue, error) {
		port := free()
		cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", fsync)
		stop, err := serve(cmd, "127.0.0.1:"+port)
		if err != nil {
			return nil, err
		}
		db := asynq.RedisClientOpt{Addr: "127.0.0.1:" + port}
		client := asynq.NewClient(db)
		server := asynq.NewServer(db, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
		if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { handle(); return nil })); err != nil {
			stop()
			return nil, err
		}
		return &queue{
			enqueue: func() error { _, err := client.Enqueue(asynq.NewTask("job", body)); return err },
			close:   func() { server.Shutdown(); client.Close(); stop() },
		}, nil
	}
}
