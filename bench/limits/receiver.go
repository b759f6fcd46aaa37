package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A receiver is the upstream: it stamps each arrival by its own monotonic clock,
// and refuses nothing. It runs in a process of its own, so that the sender does
// not delay it.
type receiver struct {
	mu       sync.Mutex
	origin   time.Time
	arrivals []time.Duration // since origin
}

// receive is the part of the receiver's process: it prints its URL, and ends with its
// standard input.
func receive() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var r receiver
	mux := http.NewServeMux()
	mux.HandleFunc("POST /gateway.do", r.arrive)
	mux.HandleFunc("POST /mark", r.mark)
	mux.HandleFunc("GET /arrivals", r.report)
	fmt.Println("http://" + l.Addr().String())
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(l, mux) }()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		failed <- nil
	}()
	return <-failed
}

func (r *receiver) arrive(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	r.mu.Lock()
	r.arrivals = append(r.arrivals, at.Sub(r.origin))
	r.mu.Unlock()
	io.Copy(io.Discard, req.Body)
	io.WriteString(w, `{"code":"10000","msg":"Success"}`)
}

// mark forgets all arrivals; now is the origin of later ones.
func (r *receiver) mark(http.ResponseWriter, *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.origin, r.arrivals = time.Now(), r.arrivals[:0]
}

func (r *receiver) report(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.arrivals)
	json.NewEncoder(w).Encode(r.arrivals)
}

// A counter controls a receiver in another process.
type counter struct {
	url   string
	child *child
}

func startReceiver() (*counter, error) {
	c, err := fork("-as", "receiver")
	if err != nil {
		return nil, err
	}
	url, err := bufio.NewReader(c.out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the receiver did not start: %w", err)
	}
	return &counter{strings.TrimSpace(url), c}, nil
}

// mark sets the instant 0 of the arrivals.
func (c *counter) mark() error {
	resp, err := http.Post(c.url+"/mark", "", nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// arrivals returns the arrivals since the mark, in order.
func (c *counter) arrivals() (since []time.Duration, err error) {
	resp, err := http.Get(c.url + "/arrivals")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return since, json.NewDecoder(resp.Body).Decode(&since)
}

func (c *counter) close() { c.child.stop() }
