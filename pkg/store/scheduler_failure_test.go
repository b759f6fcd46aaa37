//go:build linux && (amd64 || arm64)

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// counter is an upstream that counts requests.
type counter struct{ n atomic.Int64 }

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}

func run(t *testing.T, d scheduler.Store, transport http.RoundTripper) *scheduler.Scheduler {
	t.Helper()
	u := scheduler.Upstream{}
	u.URL, u.Transport = "http://api.test", transport
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func submit(t *testing.T, s *scheduler.Scheduler) (*scheduler.Call, scheduler.Reason) {
	t.Helper()
	c, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/"})
	var refused *scheduler.Error
	if errors.As(err, &refused) {
		return nil, refused.Reason
	} else if err != nil {
		t.Fatal(err)
	}
	return c, ""
}

// TestSchedulerEndsWithItsStore: after a failed sync nothing is accepted or sent.
// Fake time keeps the first checkpoint, which an idle writer makes, from being the one whose sync fails.
func TestSchedulerEndsWithItsStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk.use()
		var failing atomic.Bool
		disk.sync = func() fault {
			if failing.Load() {
				return fails
			}
			return works
		}
		up := &counter{}
		s := run(t, open(t, file(t), Options{vfs: disk.name}), up)
		if c, why := submit(t, s); why != "" {
			t.Fatal(why)
		} else if c, err := s.Wait(t.Context(), c.ID); err != nil || c.State != scheduler.Done {
			t.Fatalf("%+v, %v", c, err)
		}
		synctest.Wait()
		failing.Store(true)
		if _, why := submit(t, s); why != scheduler.NoAnswer { // it may be on disk
			t.Errorf("refused because %q, want %q", why, scheduler.NoAnswer)
		}
		select {
		case <-s.Failed():
		case <-time.After(10 * time.Second):
			t.Fatal("the scheduler goes on without its store")
		}
		before := up.n.Load()
		for range 10 {
			if _, why := submit(t, s); why != scheduler.StoreFailed && why != scheduler.Stopping {
				t.Errorf("refused because %q", why)
			}
			if _, _, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Target: "/"}); err == nil {
				t.Error("a call whose caller waits was sent")
			}
		}
		if n := up.n.Load(); n != before {
			t.Errorf("%d calls were sent after it", n-before)
		}
		if err := s.Close(); !errors.Is(err, scheduler.ErrBroken) {
			t.Errorf("Close: %v, want why", err)
		}
	})
}

// TestDamage changes single bytes of a file at random, and in every third file a
// byte of a request. A damaged request is not sent, and every request that is sent
// was submitted.
func TestDamage(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{})
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	for n := range int64(40) {
		e := storetest.NewEntry(n + 1)
		e.Request.Body = fmt.Appendf(nil, "intact %d", n+1)
		e.Request.Target = fmt.Sprintf("/%d", n+1)
		if _, err := d.Accept(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused, harmless := 0, 0
	for n := range 30 * *faults {
		path := file(t)
		damaged := append([]byte(nil), whole...)
		if n%3 == 0 {
			damaged = bytes.ReplaceAll(damaged, fmt.Appendf(nil, "intact %d", 1+n%40), fmt.Appendf(nil, "Intact %d", 1+n%40))
		}
		for range rand.N(3) {
			damaged[rand.N(len(damaged))] ^= byte(1 + rand.N(255))
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if opensAndSends(t, path) {
			harmless++
		} else {
			refused++
		}
	}
	t.Logf("%d files were refused or their store ended; in %d the damage hit nothing that is used", refused, harmless)
	if refused < 3**faults {
		t.Error("damage is hardly ever seen: the test does not work")
	}
}

// opensAndSends reports whether a store goes on with all of its calls. Every request
// that it sends must be intact.
func opensAndSends(t *testing.T, path string) bool {
	d, err := Open(path, Options{Log: quiet, boot: steadyBoot, fileID: sameFile})
	if err != nil {
		return false
	}
	up := &checker{t: t}
	u := scheduler.Upstream{}
	u.URL, u.Transport = "http://api.test", up
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet})
	if err != nil {
		d.Close()
		return false
	}
	defer s.Close()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		select {
		case <-s.Failed():
			return false
		default:
		}
		if up.n.Load() == 40 {
			return true
		}
	}
	return false // an index is damaged: some calls are not found
}

type checker struct {
	t *testing.T
	n atomic.Int64
}

func (c *checker) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	body, _ := io.ReadAll(r.Body)
	if want := "intact " + strings.TrimPrefix(r.URL.Path, "/"); r.Method != "POST" || string(body) != want || r.Header.Get("X-A") != "1" {
		c.t.Errorf("a request that was sent is damaged: %s %s %q", r.Method, r.URL.Path, body)
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}
