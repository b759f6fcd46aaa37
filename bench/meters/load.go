package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A row is a receiver's line of the table.
type row struct {
	name string
	count
	calls, done, unknown, failed, refused int // refused by the sidecar, or limited to the end
	took                                  time.Duration
}

// measure runs a receiver and the sidecar before it, and lets all clients call at once.
func (p plan) measure(r receiver) (one row, err error) {
	dir, err := os.MkdirTemp("", "bench-meters-")
	if err != nil {
		return one, err
	}
	defer os.RemoveAll(dir)
	api, err := r.start(dir, p)
	if err != nil {
		return one, err
	}
	defer api.stop()
	sidecar, listen, err := p.sidecar(dir, r, api.addr)
	if err != nil {
		return one, err
	}
	defer sidecar.stop()
	one = row{name: r.name, calls: p.calls}
	p.call(&one, "http://"+listen+"/")
	time.Sleep(200 * time.Millisecond) // for the logs of the receivers
	if one.count, err = api.count(); err != nil {
		return one, fmt.Errorf("its own count: %w", err)
	}
	return one, nil
}

// sidecar starts the sidecar before an API.
func (p plan) sidecar(dir string, r receiver, api string) (run *process, listen string, err error) {
	if listen, err = freeAddress(); err != nil {
		return nil, "", err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	text := fmt.Sprintf(`admin: %s
store: memory
upstreams:
  api:
    listen: %s
    url: http://%s
    max_wait: 120s
    resend: true
    limits:
      - {name: app, calls: 100, window: 1s}
`, admin, listen, api)
	if r.limited != "" {
		text += "    limited: " + r.limited + "\n"
	}
	file := filepath.Join(dir, "throttler.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, "", err
	}
	if run, err = start(dir, p.binary, "serve", "-c", file); err != nil {
		return nil, "", err
	}
	if err := run.ready("http://" + admin + "/readyz"); err != nil {
		run.stop()
		return nil, "", err
	}
	return run, listen, nil
}

// call lets all clients call at once, and counts the outcomes.
func (p plan) call(r *row, url string) {
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: p.calls, MaxIdleConnsPerHost: p.calls}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for range p.calls {
		wg.Go(func() {
			outcome := post(ctx, client, url)
			mu.Lock()
			defer mu.Unlock()
			switch outcome {
			case "done":
				r.done++
			case "unknown":
				r.unknown++
			case "failed":
				r.failed++
			default:
				r.refused++
			}
		})
	}
	wg.Wait()
	r.took = time.Since(began)
}

// post makes a call, and returns its outcome as the sidecar tells it.
func post(ctx context.Context, client *http.Client, url string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"amount":1}`))
	if err != nil {
		return err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.Header.Get("Throttler-Outcome")
}
