package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// accounts is the number of values of the header X-Account, which limits per key count by.
const accounts = 1000

// A request is what all connections of a load send, again and again.
type request struct {
	target string
	body   []byte
	status int // that must be answered
}

// content returns a body of n bytes.
func content(n int) []byte { return bytes.Repeat([]byte("x"), n) }

// text returns the request as it is sent, and where the four digits of X-Account are in it.
func (r request) text(addr string) (text []byte, digits int) {
	const header = "X-Account: "
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%s0000\r\nContent-Length: %d\r\n\r\n", r.target, addr, header, len(r.body))
	return append([]byte(head), r.body...), bytes.Index([]byte(head), []byte(header)) + len(header)
}

// A client is one connection with at most one request on its way. It allocates nothing
// for a request, so that the load takes as little of the machine as a client in Go can.
type client struct {
	conn   net.Conn
	text   []byte
	digits []byte // of the account, within text
	next   int    // account
	status int
	buffer [16 << 10]byte
	took   []time.Duration
}

// dialAll opens n connections.
func dialAll(addr string, n int, r request) (all []*client, err error) {
	for i := range n {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			hangUp(all)
			return nil, err
		}
		c := &client{conn: conn, next: i, status: r.status}
		text, digits := r.text(addr)
		c.text, c.digits = text, text[digits:digits+4]
		all = append(all, c)
	}
	return all, nil
}

func hangUp(all []*client) {
	for _, c := range all {
		c.conn.Close()
	}
}

// send sends the request of the next account.
func (c *client) send() error {
	n := c.next % accounts
	c.next++
	for i := len(c.digits) - 1; i >= 0; i-- {
		c.digits[i] = byte('0' + n%10)
		n /= 10
	}
	_, err := c.conn.Write(c.text)
	return err
}

// receive reads one answer.
func (c *client) receive() error {
	have := 0
	for {
		n, err := c.conn.Read(c.buffer[have:])
		have += n
		if err != nil {
			return fmt.Errorf("no answer: %w; so far %q", err, c.buffer[:have])
		}
		end := bytes.Index(c.buffer[:have], []byte("\r\n\r\n"))
		if end < 0 {
			if have == len(c.buffer) {
				return errors.New("an answer with a long head")
			}
			continue
		}
		status, length, err := parseHead(c.buffer[:end])
		if err != nil {
			return err
		}
		left := length - (have - end - 4)
		if status != c.status || left < 0 {
			return fmt.Errorf("status %d, and not %d with a body of its length: %q", status, c.status, c.buffer[:min(have, 1000)])
		}
		for left > 0 {
			n, err := c.conn.Read(c.buffer[:min(left, len(c.buffer))])
			left -= n
			if err != nil {
				return fmt.Errorf("half an answer: %w", err)
			}
		}
		return nil
	}
}

// parseHead returns the status and the Content-Length of an answer's head.
func parseHead(head []byte) (status, length int, err error) {
	line, fields, _ := bytes.Cut(head, []byte("\r\n"))
	version, rest, _ := bytes.Cut(line, []byte(" "))
	if !bytes.Equal(version, []byte("HTTP/1.1")) || len(rest) < 3 {
		return 0, 0, fmt.Errorf("%q is no status line of HTTP/1.1", line)
	}
	if status, err = strconv.Atoi(string(rest[:3])); err != nil {
		return 0, 0, err
	}
	for len(fields) > 0 {
		line, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			length, err = strconv.Atoi(string(bytes.TrimSpace(value)))
			return status, length, err
		}
	}
	return 0, 0, fmt.Errorf("an answer without Content-Length: %q", head)
}

// drive sends requests on all connections, each when the one before is answered, while
// more returns true. It returns the time that this took.
func drive(all []*client, more func() bool) (time.Duration, error) {
	errs := make([]error, len(all))
	var running sync.WaitGroup
	began := time.Now()
	for i, c := range all {
		c.took = c.took[:0]
		running.Go(func() {
			at := time.Now()
			for errs[i] == nil && more() {
				if errs[i] = c.send(); errs[i] == nil {
					errs[i] = c.receive()
				}
				now := time.Now()
				c.took = append(c.took, now.Sub(at))
				at = now
			}
		})
	}
	running.Wait()
	elapsed := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return elapsed, err // that of the first connection; they are alike
		}
	}
	return elapsed, nil
}

// during returns a condition that holds for a time from now on.
func during(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().Before(end) }
}

// warm is how long a proxy gets requests before it is measured.
const warm = 200 * time.Millisecond

// patience is the longest time that a measurement may take beyond its own.
const patience = 30 * time.Second

// A figure has the measures of one proxy, in one cell and round.
type figure struct {
	cpu       time.Duration // per request, of all its processes
	rate      float64       // requests per second
	p50, p99  time.Duration // latency
	allocated float64       // allocations per request; of processes in Go
}

// unknown is the number of allocations of a program that does not count them.
const unknown = -1

// measure drives a load through a proxy.
func measure(h *hop, connections, body int, length time.Duration) (f figure, err error) {
	all, err := dialAll(h.addr, connections, request{target: "/gateway.do", body: content(body), status: http.StatusOK})
	if err != nil {
		return f, err
	}
	defer hangUp(all)
	for _, c := range all {
		if err := c.conn.SetDeadline(time.Now().Add(warm + length + patience)); err != nil {
			return f, err
		}
	}
	if _, err := drive(all, during(warm)); err != nil {
		return f, err
	}
	scrape, mallocs, err := h.mallocs()
	if err != nil {
		return f, err
	}
	before, err := h.cpu()
	if err != nil {
		return f, err
	}
	elapsed, err := drive(all, during(length))
	if err != nil {
		return f, err
	}
	after, err := h.cpu()
	if err != nil {
		return f, err
	}
	took := make([]time.Duration, 0, 1<<16)
	for _, c := range all {
		took = append(took, c.took...)
	}
	requests := float64(len(took))
	f.cpu = time.Duration(float64(after-before) / requests)
	f.rate = requests / elapsed.Seconds()
	f.p50, f.p99 = quantiles(took)
	if h.admin == "" {
		f.allocated = unknown
		return f, nil
	}
	_, mallocs2, err := h.mallocs()
	f.allocated = max(0, mallocs2-mallocs-2*scrape) / requests
	return f, err
}

// quantiles returns the median and the 99th percentile; it sorts the times.
func quantiles(took []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}
