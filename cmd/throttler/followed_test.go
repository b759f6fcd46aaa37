package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var followedKeys = flag.Int("followed.keys", 2000, "live keys of TestFollowedPages")

// TestFollowedPages follows 64 pages, each another one, of a sidecar with many live keys, while a limit
// of 50 per 1s is saturated. The receiver measures by how much more than 1s the 50th call after a call
// comes later, without and with the followers, and that none comes earlier.
func TestFollowedPages(t *testing.T) {
	var mu sync.Mutex
	var arrivals []time.Time
	platform := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/paced") {
			mu.Lock()
			arrivals = append(arrivals, time.Now())
			mu.Unlock()
		}
	}))
	const calls, permits = 200, 50
	p := launch(t, oneUpstream("", "alipay", platform, fmt.Sprintf(`    max_waiting: 200000
    limits:
      - {name: key, per_key: 'query("key")', when: 'path == "/keyed"', calls: 5, window: 10m}
      - {name: paced, when: 'path == "/paced"', calls: %d, window: 1s}
`, permits)))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	send := func(path string) {
		resp, err := client.Get(p.data + path)
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	each(64, *followedKeys, func(n int) { send(fmt.Sprintf("/keyed?key=k%d", n)) })

	saturate := func(phase string) {
		mu.Lock()
		arrivals = nil
		mu.Unlock()
		each(calls, calls, func(int) { send("/paced") })
		mu.Lock()
		defer mu.Unlock()
		var late []time.Duration
		for i := permits; i < len(arrivals); i++ {
			gap := arrivals[i].Sub(arrivals[i-permits])
			if gap < time.Second {
				t.Errorf("%s: %d calls arrive within %v", phase, permits+1, gap)
			}
			late = append(late, gap-time.Second)
		}
		t.Logf("%-14s the 50th next call comes later than 1s by %s", phase, quantiles(late))
	}
	saturate("alone")

	ctx, stop := context.WithCancel(t.Context())
	var followers sync.WaitGroup
	var shown atomic.Int64
	pages := []string{"/ui/", "/ui/limits", "/ui/upstreams/alipay/limits/key", "/ui/upstreams/alipay/limits/paced", "/ui/calls", "/ui/events", "/ui/decide", "/ui/system"}
	for i := range 64 {
		followers.Go(func() {
			at := fmt.Sprintf("%s%%3Ffollower=%d", pages[i%len(pages)], i)
			r, err := http.NewRequestWithContext(ctx, "GET", p.admin+"/ui/live?at="+at, nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			for first := true; ; {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if first && strings.HasPrefix(line, "event: page") {
					first = false
					shown.Add(1)
				}
			}
		})
	}
	p.until(t, "each page is shown", func() bool { return shown.Load() == 64 })
	saturate("64 followers")
	stop()
	followers.Wait()
}

// each calls do with 0 to n-1, so many at once.
func each(atOnce, n int, do func(int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < n; i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	wg.Wait()
}
