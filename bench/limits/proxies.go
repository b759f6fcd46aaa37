package main

import (
	"fmt"
	"strings"
)

const throttlerYAML = `admin: %s
store: memory
log: {level: warn}
upstreams:
  bench:
    listen: %s
    url: %s
    max_wait: 5m
    max_waiting: 100000
    concurrency: 1024
    limits:
      - {name: app, calls: %d, window: %v}
`

// openThrottler runs the sidecar with one limit and room for the whole backlog.
func openThrottler(binary string, w workload, receiver string) (driver, error) {
	admin, err := freeAddr()
	if err != nil {
		return nil, err
	}
	data, err := freeAddr()
	if err != nil {
		return nil, err
	}
	yaml := fmt.Sprintf(throttlerYAML, admin, data, receiver, w.calls, w.window)
	p, err := start(ours, "throttler.yaml", yaml, binary, "serve", "-c", "throttler.yaml")
	if err != nil {
		return nil, err
	}
	if err := p.until(func() bool { return answers("http://" + admin + "/readyz") }); err != nil {
		return nil, err
	}
	return &through{newClient("http://" + data), p}, nil
}

// nginx delays calls that come too early, up to burst calls.
const nginxConf = `daemon off;
master_process off;
pid nginx.pid;
error_log stderr error;
worker_rlimit_nofile 16000;
events { worker_connections 15000; }
http {
	access_log off;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	keepalive_requests 1000000;
	limit_req_zone app zone=app:1m rate=%dr/s;
	upstream receiver {
		server %s;
		keepalive 1024;
		keepalive_requests 1000000;
	}
	server {
		listen %s backlog=4096;
		location /healthz { return 200; }
		location / {
			limit_req zone=app burst=%d;
			proxy_pass http://receiver;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
	}
}
`

func openNginx(path string, w workload, receiver string) (driver, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	perSecond := int(float64(w.calls) / w.window.Seconds())
	conf := fmt.Sprintf(nginxConf, perSecond, strings.TrimPrefix(receiver, "http://"), addr, 2*len(w.due))
	p, err := start("nginx", "nginx.conf", conf, path, "-p", ".", "-c", "nginx.conf", "-e", "stderr")
	if err != nil {
		return nil, err
	}
	if err := p.until(func() bool { return answers("http://" + addr + "/healthz") }); err != nil {
		return nil, err
	}
	return &through{newClient("http://" + addr), p}, nil
}
