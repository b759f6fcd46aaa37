package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A tokens signs with the token n, which Renew drops; none can be had while it is down.
type tokens struct {
	mu   sync.Mutex
	n    int
	down bool
}

func (k *tokens) token() string { return fmt.Sprintf("Bearer t%d", k.n) }

func (k *tokens) Sign(_ context.Context, r *upstream.Request) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down {
		return errNoToken{errors.New("no token")}
	}
	r.Header = http.Header{"Authorization": {k.token()}}
	return nil
}

type errNoToken struct{ error }

func (errNoToken) Temporary() bool { return true }

func (k *tokens) Renew(signed *upstream.Request) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if signed.Header.Get("Authorization") == k.token() {
		k.n++
	}
	return true
}

// TestCallsAreSentWithTheNewToken: a 401 burns no attempt and is sent again at once with
// another token; a second 401 in a row is the API's answer.
func TestCallsAreSentWithTheNewToken(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, tt := range []struct {
			name  string
			valid func(n int) bool // whether the API takes the token of the n-th request
			want  upstream.Outcome
			at    string
		}{
			{"one 401", func(n int) bool { return n > 1 }, upstream.Done, "[0s 10ms]"},
			{"401 for ever", func(int) bool { return false }, upstream.Failed, "[0s 10ms]"},
		} {
			k := &tokens{n: 1}
			u := Upstream{}
			u.Signer = k
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				var used []string
				f.serve = func(n int, r *http.Request) answer {
					used = append(used, r.Header.Get("Authorization"))
					if tt.valid(n) {
						return answer{after: 10 * ms}
					}
					return answer{after: 10 * ms, status: 401}
				}
				var got upstream.Outcome
				if async {
					c := wait(t, s, submit(t, s, Request{Method: "POST"}).ID)
					got = c.Outcome()
				} else {
					resp, c, err := s.Do(t.Context(), Request{Upstream: "api", Method: "POST", Target: "/"})
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					got = c.Outcome()
					if want := map[upstream.Outcome]int{upstream.Done: 200, upstream.Failed: 401}[tt.want]; resp.StatusCode != want {
						t.Errorf("%s: status %d, want %d", tt.name, resp.StatusCode, want)
					}
				}
				if got != tt.want || fmt.Sprint(f.at()) != tt.at || fmt.Sprint(used) != "[Bearer t1 Bearer t2]" {
					t.Errorf("%s, async %v: %s, sent at %v with %q; want %s, %s", tt.name, async, got, f.at(), used, tt.want, tt.at)
				}
			})
		}
	}
}

// TestTokensEndInTheMiddle: the token ends between two answers of a call, each of which
// lets it wait; each time it gets a new one. Without a token it waits and is not sent.
func TestTokensEndInTheMiddle(t *testing.T) {
	k := &tokens{n: 1}
	u := Upstream{}
	u.Signer = k
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, r *http.Request) answer {
			a := answer{status: []int{401, 429, 401, 200}[n-1]}
			if a.status == 429 {
				a.header = http.Header{"Retry-After": {"60"}}
			}
			return a
		}
		k.down = true
		c := submit(t, s, Request{Method: "POST"})
		time.Sleep(time.Hour)
		if n := len(f.at()); n != 0 {
			t.Errorf("sent %d times without a token", n)
		}
		k.mu.Lock()
		k.down = false
		k.mu.Unlock()
		end := wait(t, s, c.ID)
		var statuses []int
		for _, a := range end.Attempts {
			if a.Status != 0 {
				statuses = append(statuses, a.Status)
			}
		}
		if end.State != Done || !slices.Equal(statuses, []int{401, 429, 401, 200}) {
			t.Errorf("%s, answers %v", end.State, statuses)
		}
	})
}

// TestRenewed: attempts that had no answer do not hide the 401 before them.
func TestRenewed(t *testing.T) {
	refused := Attempt{Status: 401, Outcome: upstream.NotExecuted}
	unsigned := Attempt{Outcome: upstream.NotExecuted}
	for _, tt := range []struct {
		attempts []Attempt
		want     bool
	}{
		{nil, false},
		{[]Attempt{{}}, false},
		{[]Attempt{refused, {}}, true},
		{[]Attempt{refused, unsigned, unsigned, {}}, true},
		{[]Attempt{refused, {Status: 429, Outcome: upstream.NotExecuted}, {}}, false},
		{[]Attempt{{Status: 401, Outcome: upstream.Failed}, {}}, false},
		{[]Attempt{{Status: 401, Outcome: upstream.Unknown}, {}}, false},
	} {
		if got := renewed(tt.attempts); got != tt.want {
			t.Errorf("%+v: %v", tt.attempts, got)
		}
	}
}
