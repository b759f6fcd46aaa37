package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// A receiver is a platform in a process of its own. It counts arrivals and executions by its own clock, and takes
// webhooks, most of them at the first try.
type receiver struct {
	mu       sync.Mutex
	arrivals []time.Time
	keys     map[string][]time.Time
	executed map[string]int // by path
	hooks    map[string]int // by id
	attempts []attempt
}

// An attempt lies at the receiver from its arrival to its answer.
type attempt struct{ from, to time.Time }

// A report is the verdict of a receiver.
type report struct {
	Arrivals int            `json:"arrivals"`
	Most     int            `json:"most"` // arrivals in a window
	Keys     map[string]int `json:"keys"` // the same of each key
	Executed map[string]int `json:"executed"`
	Hooks    map[string]int `json:"hooks"`
}

// A gap is a time without an attempt at the receiver.
type gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// receive is the program of a receiver. It prints its address, and ends with its input.
func receive() {
	r := &receiver{keys: make(map[string][]time.Time), executed: make(map[string]int), hooks: make(map[string]int)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /-/report", func(w http.ResponseWriter, req *http.Request) {
		window, _ := time.ParseDuration(req.URL.Query().Get("window"))
		json.NewEncoder(w).Encode(r.report(window))
	})
	mux.HandleFunc("GET /-/gap", func(w http.ResponseWriter, req *http.Request) {
		at, _ := time.Parse(time.RFC3339Nano, req.URL.Query().Get("at"))
		json.NewEncoder(w).Encode(r.gap(at))
	})
	mux.HandleFunc("GET /-/executed", func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		json.NewEncoder(w).Encode(r.executed[req.URL.Query().Get("path")])
	})
	mux.HandleFunc("POST /-/hooks", r.hook)
	mux.HandleFunc("POST /", r.pay)
	go http.Serve(l, mux)
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// pay executes a request; a repeat of /safe is recognised.
func (r *receiver) pay(w http.ResponseWriter, req *http.Request) {
	now, path, key := time.Now(), req.URL.Path, req.URL.Query().Get("key")
	r.mu.Lock()
	r.arrivals = append(r.arrivals, now)
	r.keys[key] = append(r.keys[key], now)
	if !strings.HasPrefix(path, "/safe") || r.executed[path] == 0 {
		r.executed[path]++
	}
	r.mu.Unlock()
	time.Sleep(rand.N(20 * time.Millisecond))
	io.WriteString(w, path)
	r.mu.Lock()
	r.attempts = append(r.attempts, attempt{now, time.Now()})
	r.mu.Unlock()
}

func (r *receiver) hook(w http.ResponseWriter, req *http.Request) {
	if rand.N(5) == 0 { // if half of them fail, the breaker holds the others back
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hooks[req.Header.Get("Webhook-Id")]++
}

func (r *receiver) report(window time.Duration) report {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := report{Arrivals: len(r.arrivals), Most: mostIn(r.arrivals, window), Keys: make(map[string]int), Executed: maps.Clone(r.executed), Hooks: maps.Clone(r.hooks)}
	for key, arrivals := range r.keys {
		out.Keys[key] = mostIn(arrivals, window)
	}
	return out
}

// gap returns the time without an attempt around an instant: from the end of those that began before it to the first one since.
// Its end is zero if none has come since.
func (r *receiver) gap(at time.Time) (g gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.attempts {
		if a.from.Before(at) && a.to.After(g.From) {
			g.From = a.to
		}
	}
	for _, arrival := range r.arrivals {
		if !arrival.Before(at) && (g.To.IsZero() || arrival.Before(g.To)) {
			g.To = arrival
		}
	}
	return g
}

// A judge is a receiver's process, as a test sees it.
type judge struct {
	*testing.T
	url string
}

// startReceiver starts a receiver, which ends with the test.
func startReceiver(t *testing.T) *judge {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: program, Args: []string{"receiver"}, Stderr: os.Stderr}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		t.Fatal(err)
	}
	return &judge{t, "http://" + addr}
}

func (j *judge) get(page string, query url.Values, to any) {
	resp, err := http.Get(j.url + "/-/" + page + "?" + query.Encode())
	if err != nil {
		j.Error(err)
		return
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
		j.Error(err)
	}
}

func (j *judge) report(window time.Duration) (r report) {
	j.get("report", url.Values{"window": {window.String()}}, &r)
	return r
}

func (j *judge) gap(at time.Time) (g gap) {
	j.get("gap", url.Values{"at": {at.Format(time.RFC3339Nano)}}, &g)
	return g
}

func (j *judge) executed(path string) (n int) {
	j.get("executed", url.Values{"path": {path}}, &n)
	return n
}
