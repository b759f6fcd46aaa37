package cases

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// An exchange is a request that the platform got.
type exchange struct {
	sent         string // request, query or second
	at           time.Duration
	target, body string
	pauses       bool // a limit or the upstream, until the next exchange
}

// goesTo reports whether a request has a target, or a text in its body.
func (e exchange) goesTo(text string) bool {
	return e.target == text || strings.Contains(e.body, text)
}

// A Platform stands for the platform of a case: it notes each request, and answers as the case
// says. It is safe for concurrent use.
type Platform struct {
	c     config.Case
	start time.Time

	mu        sync.Mutex
	exchanges []exchange
}

// NewPlatform returns the platform of a case.
func NewPlatform(c config.Case) *Platform { return &Platform{c: c, start: time.Now()} }

// Take notes a request and returns its answer. Headers are not compared: a signer may have added some.
func (p *Platform) Take(method, target string, body []byte) config.Answer {
	e := exchange{sent: "query", at: time.Since(p.start), target: target, body: string(body)}
	is := func(known *upstream.Request) bool {
		return known != nil && known.Method == method && known.Target == target && bytes.Equal(known.Body, body)
	}
	switch {
	case is(p.c.Request):
		e.sent = "request"
	case is(p.c.Second):
		e.sent = "second"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exchanges = append(p.exchanges, e)
	return p.answer(len(p.exchanges)-1, e.sent)
}

// answer returns the answer to the exchange n; without one in the case it is lost.
func (p *Platform) answer(n int, sent string) config.Answer {
	switch c := p.c; {
	case n < len(c.Exchanges):
		return c.Exchanges[n].Answer
	case len(c.Exchanges) > 0:
	case sent == "query" && c.Query != nil:
		return *c.Query
	case (n == 0 || c.Becomes != "") && c.Answer != nil:
		return *c.Answer
	}
	return config.Answer{Error: "closed"}
}

// Paused notes that a limit or the upstream is paused since the latest exchange.
func (p *Platform) Paused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.exchanges); n > 0 {
		p.exchanges[n-1].pauses = true
	}
}

// Sent returns the number of requests up to now, without queries.
func (p *Platform) Sent() (n int) {
	for _, e := range p.all() {
		if e.sent != "query" {
			n++
		}
	}
	return n
}

// all returns the exchanges up to now.
func (p *Platform) all() []exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.exchanges)
	if len(all) > 0 && p.c.Answer != nil && p.c.Answer.Error == "dial" { // an upstream that is down gets no other call
		all[0].pauses = true
	}
	return all
}

// transport is the platform of a case, without a network.
type transport struct{ *Platform }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	a := t.Take(r.Method, r.URL.RequestURI(), body)
	switch a.Error {
	case "dial":
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case "timeout":
		return nil, os.ErrDeadlineExceeded
	case "reset":
		return nil, syscall.ECONNRESET
	case "closed":
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: a.Status, Header: a.Header.Clone(), Body: io.NopCloser(bytes.NewReader(a.Body))}, nil
}
