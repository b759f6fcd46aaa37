package main

import (
	"fmt"
	"os"
	"time"
)

// Names of proxies that the ratios compare.
const (
	ours    = "Throttler, 3 limits"
	nginx   = "nginx limit_req"
	reverse = "ReverseProxy + x/time/rate"
	bare    = "bare net/http"
)

// A proxy can be started in front of an upstream. Its limits never bind.
type proxy struct {
	name  string
	needs string // a program beside those of this project; "" for none
	open  func(name, upstream string) (*hop, error)
}

// A hop is a running proxy, or the upstream itself.
type hop struct {
	addr    string
	admin   string // with metrics; "" for a program that is not in Go
	process *process
}

// proxies returns all proxies, in the order of the tables.
func proxies(binary string) []proxy {
	throttler := func(name, store, limits string) proxy {
		return proxy{name: name, open: func(name, upstream string) (*hop, error) {
			return openThrottler(name, binary, fmt.Sprintf(throttlerYAML, "%s", store, "%s", upstream)+limits)
		}}
	}
	return []proxy{
		throttler("Throttler, no limit", "memory", ""),
		throttler("Throttler, 1 limit", "memory", "    limits:"+perSecond),
		throttler(ours, "memory", "    limits:"+perSecond+perMinute+perDay),
		throttler("Throttler, limit per key", "memory", "    limits:"+perKey),
		throttler("Throttler, 3 limits, SQLite", "throttler.db", "    limits:"+perSecond+perMinute+perDay),
		{name: nginx, needs: "nginx", open: openNginx},
		{name: "HAProxy stick table", needs: "haproxy", open: openHAProxy},
		{name: reverse, open: openPart("reverse")},
		{name: "fasthttp + x/time/rate", open: openPart("fasthttp")},
		{name: bare, open: openPart("bare")},
	}
}

const throttlerYAML = `admin: %s
store: %s
grace: 0s
log: {level: warn}
upstreams:
  bench:
    listen: %s
    url: http://%s
    max_wait: 1h
    concurrency: 1024
`

// Limits that never bind. With a file, permits of the day are leased on disk ahead of their use.
const (
	perSecond = "\n      - {name: second, calls: 10000000, window: 1s}"
	perMinute = "\n      - {name: minute, calls: 100000000, window: 1m}"
	perDay    = "\n      - {name: day, calls: 1000000000, window: day}"
	perKey    = "\n      - {name: account, per_key: 'header(\"X-Account\")', calls: 10000000, window: 1s}"
)

// openThrottler runs the sidecar; its configuration has a place for the address of each listener.
func openThrottler(name, binary, yaml string) (*hop, error) {
	addrs, err := freeAddrs(2)
	if err != nil {
		return nil, err
	}
	p, err := start(name, "throttler.yaml", fmt.Sprintf(yaml, addrs[0], addrs[1]), binary, "serve", "-c", "throttler.yaml")
	if err != nil {
		return nil, err
	}
	return &hop{addrs[1], addrs[0], p}, p.until(func() bool { return answers("http://" + addrs[0] + "/readyz") })
}

// nginx has one worker for each processor, as it is installed.
const nginxConf = `daemon off;
pid nginx.pid;
error_log stderr error;
worker_processes auto;
worker_rlimit_nofile 16000;
%s
events { worker_connections 8000; }
http {
	access_log off;
	client_body_buffer_size 128k;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	keepalive_requests 100000000;
	default_type application/json;
	%s
}
`

const nginxProxy = `limit_req_zone app zone=app:1m rate=1000000r/s;
	upstream bench {
		server %s;
		keepalive 1024;
		keepalive_requests 100000000;
	}
	server {
		listen %s backlog=4096;
		location / {
			limit_req zone=app burst=1000000 nodelay;
			proxy_pass http://bench;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
	}`

const nginxAnswer = `server { listen %s backlog=4096; location / { return 200 '%s'; } }`

func openNginx(name, upstream string) (*hop, error) {
	return runNginx(name, func(addr string) string { return fmt.Sprintf(nginxProxy, upstream, addr) })
}

// runNginx runs nginx with a part of its configuration that has its address.
func runNginx(name string, part func(addr string) string) (*hop, error) {
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;" // the directory is not for another user
	}
	return openPeer(name, "nginx.conf", func(addr string) string {
		return fmt.Sprintf(nginxConf, user, part(addr))
	}, "nginx", "-p", ".", "-c", "nginx.conf", "-e", "stderr")
}

// together is the greatest body that arrives with its head, in bytes.
const together = 4 << 10

// openUpstream runs an upstream for requests with a body of a size. nginx answers a larger
// body before it has read it, and then some connections end: fasthttp's server reads it whole.
func openUpstream(body int) (*hop, error) {
	const name = "the upstream"
	if body > together {
		return openPart("upstream")(name, "")
	}
	return runNginx(name, func(addr string) string { return fmt.Sprintf(nginxAnswer, addr, answer) })
}

// HAProxy has one thread for each processor, as it is installed.
const haproxyConf = `global
	maxconn 8000
defaults
	mode http
	timeout connect 30s
	timeout client 30s
	timeout server 30s
	http-reuse always
frontend hop
	bind %s
	http-request track-sc0 str(app) table rate
	http-request deny deny_status 429 if { sc_http_req_rate(0,rate) gt 1000000000 }
	default_backend bench
backend rate
	stick-table type string len 32 size 100k expire 10s store http_req_rate(1s)
backend bench
	server bench %s
`

func openHAProxy(name, upstream string) (*hop, error) {
	return openPeer(name, "haproxy.cfg", func(addr string) string {
		return fmt.Sprintf(haproxyConf, addr, upstream)
	}, "haproxy", "-db", "-q", "-f", "haproxy.cfg")
}

// openPeer runs a server of others, with a configuration that has its address.
func openPeer(name, file string, conf func(addr string) string, program string, args ...string) (*hop, error) {
	path, err := find(program)
	if err != nil {
		return nil, err
	}
	addrs, err := freeAddrs(1)
	if err != nil {
		return nil, err
	}
	p, err := start(name, file, conf(addrs[0]), path, args...)
	if err != nil {
		return nil, err
	}
	return &hop{addrs[0], "", p}, p.until(func() bool { return answers("http://" + addrs[0] + "/") })
}

// openPart runs another part of this program.
func openPart(part string) func(name, upstream string) (*hop, error) {
	return func(name, upstream string) (*hop, error) {
		addrs, err := freeAddrs(2)
		if err != nil {
			return nil, err
		}
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		p, err := start(name, "", "", self, "-as", part, "--", addrs[0], addrs[1], upstream)
		if err != nil {
			return nil, err
		}
		return &hop{addrs[0], addrs[1], p}, p.until(func() bool { return answers("http://" + addrs[0] + "/") })
	}
}

func (h *hop) cpu() (time.Duration, error) {
	cpu, _, err := usage(h.process.group)
	return cpu, err
}

// mallocs returns the allocations of a process in Go so far, and those of this question alone.
func (h *hop) mallocs() (scrape, all float64, err error) {
	if h.admin == "" {
		return 0, 0, nil
	}
	first, err := metrics(h.admin)
	if err != nil {
		return 0, 0, err
	}
	second, err := metrics(h.admin)
	return second[mallocsMetric] - first[mallocsMetric], second[mallocsMetric], err
}
