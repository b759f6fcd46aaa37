package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"
)

// parts are the servers that this program has itself. Each gets its address, one for its
// metrics, and the upstream's.
var parts = map[string]func(addr, admin, upstream string) error{
	"upstream": serveUpstream,
	"reverse":  serveReverse,
	"fasthttp": serveFast,
	"bare":     serveBare,
}

// answer is the upstream's answer to everything.
const answer = `{"code":"10000","msg":"Success","trade_no":"2026112322001400000000000001","total_amount":"1.00"}`

// connections of a proxy to its upstream, which it keeps open.
const idle = 1024

// An allowance never binds, and is asked nevertheless.
func allowance() *rate.Limiter { return rate.NewLimiter(1e9, 1e9) }

// serve serves metrics, and all else until that fails.
func serve(admin string, requests func() error) error {
	failed := make(chan error, 2)
	go func() { failed <- http.ListenAndServe(admin, http.HandlerFunc(serveMetrics)) }()
	go func() { failed <- requests() }()
	return <-failed
}

func serveMetrics(w http.ResponseWriter, _ *http.Request) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Fprintf(w, "%s %d\n%s %d\n%s %d\n", mallocsMetric, m.Mallocs, heapMetric, m.HeapInuse, stackMetric, m.StackInuse)
}

// serveUpstream reads each request whole and answers.
func serveUpstream(addr, admin, _ string) error {
	body := []byte(answer)
	s := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(c *fasthttp.RequestCtx) {
		c.SetContentType("application/json")
		c.SetBody(body)
	}}
	return serve(admin, func() error { return s.ListenAndServe(addr) })
}

// A pool has buffers for bodies.
type pool struct{ sync.Pool }

func newPool() *pool {
	return &pool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}
}

func (p *pool) Get() []byte  { return p.Pool.Get().(*[32 << 10]byte)[:] }
func (p *pool) Put(b []byte) { p.Pool.Put((*[32 << 10]byte)(b)) }

func newTransport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: idle, IdleConnTimeout: 90 * time.Second, DisableCompression: true}
}

// serveReverse is a ReverseProxy as it is tuned: it keeps its connections, and the buffers of
// bodies.
func serveReverse(addr, admin, upstream string) error {
	limiter := allowance()
	to := &url.URL{Scheme: "http", Host: upstream}
	proxy := &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:  newTransport(),
		BufferPool: newPool(),
		ErrorLog:   log.New(io.Discard, "", 0),
	}
	return serve(admin, func() error {
		return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !limiter.Allow() {
				http.Error(w, "limited", http.StatusTooManyRequests)
				return
			}
			proxy.ServeHTTP(w, r)
		}))
	})
}

// serveFast is fasthttp's server in front of its client.
func serveFast(addr, admin, upstream string) error {
	limiter := allowance()
	client := &fasthttp.HostClient{Addr: upstream, MaxConns: idle, NoDefaultUserAgentHeader: true, DisablePathNormalizing: true}
	s := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(c *fasthttp.RequestCtx) {
		if !limiter.Allow() {
			c.Error("limited", fasthttp.StatusTooManyRequests)
			return
		}
		c.Request.Header.Del("Connection")
		c.Request.SetHost(upstream)
		if err := client.Do(&c.Request, &c.Response); err != nil {
			c.Error(err.Error(), fasthttp.StatusBadGateway)
			return
		}
		c.Response.Header.Del("Connection")
	}}
	return serve(admin, func() error { return s.ListenAndServe(addr) })
}

// serveBare is net/http's server in front of its client, and nothing between: no limit, no
// check, no removal of fields of one connection. It is no proxy, but the floor of those
// that are made of net/http.
func serveBare(addr, admin, upstream string) error {
	transport, buffers := newTransport(), newPool()
	return serve(admin, func() error {
		return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Scheme, r.URL.Host, r.RequestURI = "http", upstream, ""
			resp, err := transport.RoundTrip(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			h := w.Header()
			for name, values := range resp.Header {
				h[name] = values
			}
			w.WriteHeader(resp.StatusCode)
			buffer := buffers.Get()
			defer buffers.Put(buffer)
			io.CopyBuffer(struct{ io.Writer }{w}, resp.Body, buffer)
		}))
	})
}
