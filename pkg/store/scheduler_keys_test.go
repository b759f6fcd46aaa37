package store

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestKeysAndAnswers: a caller who comes again with the key of a durable call, in
// another life too, gets the answer that there was.
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
		for life := range 2 {
			for range 2 {
				if got, err := do("/durable/1", "k", "x"); err != nil || got != "2001answer to /durable/1" {
					t.Errorf("life %d: %q, %v", life, got, err)
				}
			}
			if _, err := do("/durable/1", "k", "y"); err == nil || !strings.Contains(err.Error(), "another request") {
				t.Errorf("life %d: other content: %v", life, err)
			}
			s.Close()
			s = startProcess(t, path, up)
		}
		defer s.Close()
		if got := up.sent(); len(got) != 1 {
			t.Errorf("sent %v, want once", got)
		}
		for range 2 { // its key is forwarded, and is nothing to us
			if _, err := do("/plain", "k", "x"); err != nil {
				t.Error(err)
			}
		}
		if got := up.sent(); len(got) != 3 {
			t.Errorf("sent %v, want /plain twice", got)
		}
	})
}

// TestKeyOfAWaitingCall: who comes with the key of a call that waits for long is told
// so when its own time is over; and a key is kept, over a crash as well, for its time
// and not longer.
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
		time.Sleep(time.Until(c.NotBefore) + DefaultKeepKeys - 10*time.Minute) // from its end on
		if again := hand(t, s, r); again.ID != c.ID {
			t.Error("the key is not known any more before its time is over")
		}
		time.Sleep(20 * time.Minute)
		if again := hand(t, s, r); again.ID == c.ID {
			t.Error("the key is known longer than its time")
		}
	})
}
