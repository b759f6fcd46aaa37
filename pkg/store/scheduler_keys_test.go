package store

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestKeysAndAnswers: a request with the key of a durable call gets the response of
// that call, from another process too.
func TestKeysAndAnswers(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		path, up := filepath.Join(dir, "keys.db"), &log{}
		s := startProcess(t, path, up)
		do := func(target, key, body string) (string, error) {
			resp, _, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: target, IdempotencyKey: key, Body: []byte(body)})
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return fmt.Sprint(resp.StatusCode, resp.Header.Get("X-N"), string(b)), err
		}
		for process := range 2 {
			for range 2 {
				if got, err := do("/durable/1", "k", "x"); err != nil || got != "2001answer to /durable/1" {
					t.Errorf("process %d: %q, %v", process, got, err)
				}
			}
			if _, err := do("/durable/1", "k", "y"); err == nil || !strings.Contains(err.Error(), "another request") {
				t.Errorf("process %d: other content: %v", process, err)
			}
			s.Close()
			s = startProcess(t, path, up)
		}
		defer s.Close()
		if got := up.sent(); len(got) != 1 {
			t.Errorf("sent %v, want once", got)
		}
		for range 2 { // not durable: its key is only forwarded
			if _, err := do("/plain", "k", "x"); err != nil {
				t.Error(err)
			}
		}
		if got := up.sent(); len(got) != 3 {
			t.Errorf("sent %v, want /plain twice", got)
		}
	})
}

// long answers with more than is kept of an answer.
type long struct{}

func (long) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(strings.Repeat("x", 3<<20)))}, nil
}

// TestKeyOfALongAnswer: a part of an answer is not passed on for the whole.
func TestKeyOfALongAnswer(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		s := startProcess(t, filepath.Join(dir, "long.db"), long{})
		defer s.Close()
		r := scheduler.Request{Upstream: "api", Method: "POST", Target: "/durable/1", IdempotencyKey: "k"}
		resp, _, err := s.Do(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != 3<<20 || err != nil {
			t.Errorf("the first client got %d bytes, %v", n, err)
		}
		resp.Body.Close()
		if _, known, err := s.Do(t.Context(), r); !errors.Is(err, scheduler.NoAnswer) || known == nil || known.State != scheduler.Done {
			t.Errorf("the second: %+v, %v; want no_answer about a call that is done", known, err)
		}
	})
}

// TestKeyOfAWaitingCall: a request with the key of a call that waits for long is
// refused at the end of its own max_wait. A key is kept for its time and not longer,
// over a restart as well.
func TestKeyOfAWaitingCall(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		path, up := filepath.Join(dir, "waits.db"), &log{}
		s := startProcess(t, path, up)
		r := scheduler.Request{Target: "/durable/1", IdempotencyKey: "k", NotBefore: time.Now().Add(time.Hour)}
		c := hand(t, s, r)
		for range 2 {
			begin := time.Now()
			r.NotBefore = time.Time{}
			_, known, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: r.Target, IdempotencyKey: "k"})
			var refused *scheduler.Error
			if !errors.As(err, &refused) || refused.Reason != scheduler.WrongState || known.ID != c.ID || time.Since(begin) > time.Minute {
				t.Errorf("%+v, %v after %v; want the call that waits, and wrong_state", known, err, time.Since(begin))
			}
			s.Close()
			s = startProcess(t, path, up)
		}
		defer s.Close()
		time.Sleep(time.Until(c.NotBefore) + DefaultKeepKeys - 10*time.Minute) // counted from its end
		if again := hand(t, s, r); again.ID != c.ID {
			t.Error("the key is not known any more before its time is over")
		}
		time.Sleep(20 * time.Minute)
		if again := hand(t, s, r); again.ID == c.ID {
			t.Error("the key is known longer than its time")
		}
	})
}
