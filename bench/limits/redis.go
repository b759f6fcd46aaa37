package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// redisRate drives redis_rate with a Redis server of its own.
type redisRate struct {
	inProcess
	db     *redis.Client
	server *process
}

func openRedis(path string, w workload, receiver string) (driver, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	conf := fmt.Sprintf("bind %s\nport %s\nsave \"\"\nappendonly no\n", host, port)
	server, err := start("redis-server", "redis.conf", conf, path, "redis.conf")
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	redis.SetLogger(silent{}) // about dials before the server is ready; errors are returned anyway
	db := redis.NewClient(&redis.Options{Addr: addr})
	if err := server.until(func() bool { return db.Ping(ctx).Err() == nil }); err != nil {
		return nil, err
	}
	l := redis_rate.NewLimiter(db)
	limit := redis_rate.Limit{Rate: w.calls, Burst: w.calls, Period: w.window}
	ask := waiter(func() error {
		for {
			answer, err := l.Allow(ctx, "app", limit)
			if err != nil {
				return fmt.Errorf("redis_rate: %w", err)
			}
			if answer.Allowed > 0 {
				return nil
			}
			time.Sleep(answer.RetryAfter)
		}
	})
	return &redisRate{inProcess{ask, newClient(receiver)}, db, server}, nil
}

func (r *redisRate) close() error {
	r.inProcess.close()
	r.db.Close()
	return r.server.stop()
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
