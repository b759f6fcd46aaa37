package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// body is the body of a call, 500 bytes.
var body = bytes.Repeat([]byte("biz=1&"), 84)[:500]

// A driver sends calls, one at each due instant after origin, and returns when
// all are answered.
type driver interface {
	drive(origin time.Time, due []time.Duration) error
	close() error
}

// maxConns is the most connections of a client. A backlog may have more calls: these follow
// as connections become free, long before they are due at the receiver. A proxy with 20,000
// files, two for each connection, has room for them all.
const maxConns = 8000

// A client sends calls to one address and keeps its connections.
type client struct {
	url  string
	http *http.Client
	pool chan net.Conn // dialled ahead
}

func newClient(url string) *client {
	c := &client{url: url, pool: make(chan net.Conn, maxConns)}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:         c.dial,
		MaxConnsPerHost:     maxConns,
		MaxIdleConns:        cap(c.pool),
		MaxIdleConnsPerHost: cap(c.pool),
		DisableCompression:  true,
	}}
	return c
}

func (c *client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	select {
	case conn := <-c.pool:
		return conn, nil
	default:
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}

// warm dials n connections ahead, so that dialling does not delay calls that are
// due at once.
func (c *client) warm(n int) error {
	for range n {
		conn, err := net.Dial("tcp", c.url[len("http://"):])
		if err != nil {
			return err
		}
		c.pool <- conn
	}
	return nil
}

// call sends one call and returns the time at which its answer began.
func (c *client) call() (time.Time, error) {
	req, err := http.NewRequest("POST", c.url+"/gateway.do", bytes.NewReader(body))
	if err != nil {
		return time.Time{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.http.Do(req)
	if err != nil {
		return time.Time{}, err
	}
	answered := time.Now()
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return answered, fmt.Errorf("status %d, %v: %s", resp.StatusCode, err, text)
	}
	return answered, nil
}

func (c *client) close() {
	c.http.CloseIdleConnections()
	for {
		select {
		case conn := <-c.pool:
			conn.Close()
		default:
			return
		}
	}
}

// failure keeps the first error of many goroutines.
type failure struct {
	once sync.Once
	err  error
}

func (f *failure) set(err error) {
	if err != nil {
		f.once.Do(func() { f.err = err })
	}
}

// A gate is a limiter in this process. wait returns when the next call may be
// sent; one goroutine calls it. ended is called after each answer.
type gate interface {
	wait() error
	ended(sent, answered time.Time)
}

// waiter is a gate that ignores answers.
type waiter func() error

func (w waiter) wait() error                { return w() }
func (w waiter) ended(time.Time, time.Time) {}

// inProcess drives a gate in the cheapest way: one goroutine waits for all
// calls, first in, first out, and each call is sent on its own.
type inProcess struct {
	gate   gate
	client *client
}

func (d *inProcess) drive(origin time.Time, due []time.Duration) error {
	var calls sync.WaitGroup
	var failed failure
	for _, after := range due {
		time.Sleep(time.Until(origin.Add(after)))
		if err := d.gate.wait(); err != nil {
			failed.set(err)
			break
		}
		sent := time.Now()
		calls.Go(func() {
			answered, err := d.client.call()
			failed.set(err)
			d.gate.ended(sent, answered)
		})
	}
	calls.Wait()
	return failed.err
}

func (d *inProcess) close() error {
	d.client.close()
	return nil
}

// through drives a proxy between client and receiver: every call is sent when
// it is due, on a connection of its own.
type through struct {
	client *client
	proxy  *process
}

func (d *through) drive(origin time.Time, due []time.Duration) error {
	var calls sync.WaitGroup
	var failed failure
	for _, after := range due {
		time.Sleep(time.Until(origin.Add(after)))
		calls.Go(func() {
			_, err := d.client.call()
			failed.set(err)
		})
	}
	calls.Wait()
	return failed.err
}

func (d *through) close() error {
	d.client.close()
	return d.proxy.stop()
}
