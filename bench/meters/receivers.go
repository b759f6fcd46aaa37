package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/httprate"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
)

// A receiver is an API behind a rate limiter, as the limiter's documents set it up for 100 calls a second.
type receiver struct {
	name    string
	limited string // key of the sidecar's file; empty for none
	start   func(dir string, p plan) (*running, error)
}

// running is a receiver that runs.
type running struct {
	addr  string
	stop  func()
	count func() (count, error)
}

// count has the numbers of a receiver.
type count struct{ Requests, Limited, Accepted int }

func receivers() []receiver {
	var all []receiver
	add := func(name, limited string, start func(dir string, p plan) (*running, error)) {
		all = append(all, receiver{name, limited, start})
	}
	add("nginx rate=100r/s, default status 503", "[503]", nginx("", ""))
	add("nginx rate=100r/s, status 429", "", nginx("", "limit_req_status 429;"))
	add("nginx burst=20, status 503", "[503]", nginx("burst=20", ""))
	add("nginx burst=20, status 429", "", nginx("burst=20", "limit_req_status 429;"))
	add("nginx burst=20 nodelay, status 503", "[503]", nginx("burst=20 nodelay", ""))
	add("nginx burst=20 nodelay, status 429", "", nginx("burst=20 nodelay", "limit_req_status 429;"))
	add("HAProxy http_req_rate(1s) gt 100, default status 403", "[403]", haproxy(""))
	add("HAProxy http_req_rate(1s) gt 100, status 429", "", haproxy("deny_status 429"))
	add("httprate.LimitAll(100, time.Second)", "", inProcess(func(next http.Handler) (http.Handler, error) {
		return httprate.LimitAll(100, time.Second)(next), nil
	}))
	add("throttled PerSec(100), MaxBurst 0", "", inProcess(gcra(0)))
	add("throttled PerSec(100), MaxBurst 20", "", inProcess(gcra(20)))
	add("throttled PerSec(100), MaxBurst 99", "", inProcess(gcra(99)))
	add("express-rate-limit windowMs 1000, limit 100", "", express)
	add("Redis INCR and PEXPIRE 1000", "", redisCounter)
	return all
}

// backend is the API behind a limiter; it counts the calls that come through.
func backend(accepted *atomic.Int64) (addr string, stop func(), err error) {
	return serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		accepted.Add(1)
		w.Write([]byte("{}"))
	}))
}

func serve(h http.Handler) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	return l.Addr().String(), func() { s.Close() }, nil
}

// inProcess is a receiver with a limiter of Go. All that comes in is counted before the limiter, by the status that it
// goes out with.
func inProcess(limiter func(http.Handler) (http.Handler, error)) func(string, plan) (*running, error) {
	return func(string, plan) (*running, error) {
		var requests, limited, accepted atomic.Int64
		h, err := limiter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			accepted.Add(1)
			w.Write([]byte("{}"))
		}))
		if err != nil {
			return nil, err
		}
		addr, stop, err := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			h.ServeHTTP(&statusWriter{w, &limited}, r)
		}))
		return &running{addr, stop, func() (count, error) {
			return count{int(requests.Load()), int(limited.Load()), int(accepted.Load())}, nil
		}}, err
	}
}

type statusWriter struct {
	http.ResponseWriter
	limited *atomic.Int64
}

func (w *statusWriter) WriteHeader(status int) {
	if status == http.StatusTooManyRequests {
		w.limited.Add(1)
	}
	w.ResponseWriter.WriteHeader(status)
}

func gcra(burst int) func(http.Handler) (http.Handler, error) {
	return func(next http.Handler) (http.Handler, error) {
		store, err := memstore.NewCtx(65536)
		if err != nil {
			return nil, err
		}
		limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(100), MaxBurst: burst})
		if err != nil {
			return nil, err
		}
		h := throttled.HTTPRateLimiterCtx{RateLimiter: limiter, VaryBy: &throttled.VaryBy{Path: true}}
		return h.RateLimit(next), nil
	}
}

// logged is a receiver in a process of its own whose log has a line for each request, with the status alone.
func logged(p *process, addr string, accepted *atomic.Int64, stopBackend func(), log func() (string, error)) (*running, error) {
	if err := p.listens(addr); err != nil {
		p.stop()
		return nil, err
	}
	return &running{addr, func() { p.stop(); stopBackend() }, func() (c count, err error) {
		text, err := log()
		for line := range strings.Lines(text) {
			status, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil { // of the program itself
				continue
			}
			c.Requests++
			if status != http.StatusOK {
				c.Limited++
			}
		}
		c.Accepted = int(accepted.Load())
		return c, err
	}}, nil
}

// A proxy is a program that limits in front of a backend.
type proxy struct {
	file string                                                 // name of its configuration
	text func(dir, addr, api string) string                     // its configuration
	args func(p plan, dir, file string) []string                // program and arguments
	log  func(run *process, dir string) (log string, err error) // of a line for each request
}

// receiver returns the proxy in front of a backend of its own.
func (of proxy) receiver(dir string, p plan) (r *running, err error) {
	accepted := new(atomic.Int64)
	api, stop, err := backend(accepted)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, of.file)
	if err := os.WriteFile(file, []byte(of.text(dir, addr, api)), 0o600); err != nil {
		return nil, err
	}
	args := of.args(p, dir, file)
	run, err := start(dir, args[0], args[1:]...)
	if err != nil {
		return nil, err
	}
	return logged(run, addr, accepted, stop, func() (string, error) { return of.log(run, dir) })
}

func nginx(burst, status string) func(string, plan) (*running, error) {
	return proxy{
		file: "nginx.conf",
		text: func(dir, addr, api string) string {
			return fmt.Sprintf(`daemon off; pid %[1]s/nginx.pid; error_log stderr crit; worker_processes 1;
events { worker_connections 4096; }
http {
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	log_format status $status; access_log %[1]s/access.log status;
	limit_req_zone $server_name zone=all:1m rate=100r/s;
	upstream api { server %[2]s; keepalive 100; }
	server {
		listen %[3]s; server_name api;
		location / { limit_req zone=all %[4]s; %[5]s proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection ""; }
	}
}
`, dir, api, addr, burst, status)
		},
		args: func(p plan, dir, file string) []string {
			return []string{p.nginx, "-p", dir, "-e", "stderr", "-c", file}
		},
		log: func(_ *process, dir string) (string, error) {
			log, err := os.ReadFile(filepath.Join(dir, "access.log"))
			return string(log), err
		},
	}.receiver
}

func haproxy(status string) func(string, plan) (*running, error) {
	return proxy{
		file: "haproxy.cfg",
		text: func(_, addr, api string) string {
			return fmt.Sprintf(`global
	maxconn 4096
	log stdout format raw local0
defaults
	mode http
	timeout client 60s
	timeout server 60s
	timeout connect 5s
frontend api
	bind %s
	log global
	log-format %%ST
	stick-table type integer size 1k expire 10s store http_req_rate(1s)
	http-request track-sc0 int(1)
	http-request deny %s if { sc_http_req_rate(0) gt 100 }
	default_backend api
backend api
	server api %s
`, addr, status, api)
		},
		args: func(p plan, _, file string) []string { return []string{p.haproxy, "-f", file} },
		log:  func(run *process, _ string) (string, error) { return run.out.String(), nil },
	}.receiver
}

func express(_ string, p plan) (*running, error) {
	run, err := start(p.express, "node", "receiver.mjs")
	if err != nil {
		return nil, err
	}
	addr, err := run.line()
	if err != nil {
		run.stop()
		return nil, err
	}
	return &running{addr, run.stop, func() (c count, err error) {
		resp, err := http.Get("http://" + addr + "/count")
		if err != nil {
			return c, err
		}
		defer resp.Body.Close()
		return c, json.NewDecoder(resp.Body).Decode(&c)
	}}, nil
}

// redisCounter counts in Redis, as its documents on INCR do: the first hit of a window sets its end.
func redisCounter(dir string, p plan) (*running, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(addr)
	run, err := start(dir, p.redis, "--bind", host, "--port", port, "--save", "", "--dir", dir)
	if err != nil {
		return nil, err
	}
	if err := run.listens(addr); err != nil {
		run.stop()
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	r, err := inProcess(func(next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			hits, err := hit(req.Context(), client)
			switch {
			case err != nil:
				w.WriteHeader(http.StatusInternalServerError)
			case hits > 100:
				w.WriteHeader(http.StatusTooManyRequests)
			default:
				next.ServeHTTP(w, req)
			}
		}), nil
	})(dir, p)
	if err != nil {
		run.stop()
		return nil, err
	}
	stop := r.stop
	r.stop = func() { stop(); client.Close(); run.stop() }
	return r, nil
}

func hit(ctx context.Context, client *redis.Client) (int64, error) {
	hits, err := client.Incr(ctx, "all").Result()
	if err == nil && hits == 1 {
		err = client.PExpire(ctx, "all", time.Second).Err()
	}
	return hits, err
}
