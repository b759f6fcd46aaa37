package scheduler_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// A slow upstream sends the head of an answer at once, and each piece, and the end, after two
// seconds.
type slow struct {
	pieces []string
	end    error // of the body
	sent   int
}

func (p *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	p.sent++
	body, pieces := io.Pipe()
	go func() {
		for i := 0; ; i++ {
			select {
			case <-time.After(2 * time.Second):
			case <-r.Context().Done():
				pieces.CloseWithError(context.Cause(r.Context()))
				return
			}
			if i == len(p.pieces) {
				pieces.CloseWithError(p.end)
				return
			}
			io.WriteString(pieces, p.pieces[i])
		}
	}()
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body, Request: r}, nil
}

// A tardy store takes three seconds to record the end of a call.
type tardy struct{ *store.DB }

func (d tardy) Record(ctx context.Context, c *scheduler.Call) error {
	time.Sleep(3 * time.Second)
	return d.DB.Record(ctx, c)
}

var quiet = slog.New(slog.DiscardHandler)

// stored runs a test in a bubble, with a store.
func stored(t *testing.T, test func(t *testing.T, db *store.DB)) {
	path := filepath.Join(t.TempDir(), "calls.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(path, store.Options{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		test(t, db)
	})
}

// piecewise reads an answer, and returns its pieces and when each came, and the end.
func piecewise(body io.Reader, begin time.Time) (pieces []string, at []time.Duration, end error) {
	chunk := make([]byte, 8)
	for {
		n, err := body.Read(chunk)
		if n > 0 {
			pieces = append(pieces, string(chunk[:n]))
		}
		at = append(at, time.Since(begin).Round(time.Second))
		if err != nil {
			return pieces, at, err
		}
	}
}

// TestStreamedAnswers: the caller of a durable call gets a slow answer as it comes. Its end
// comes when the store has the end of the call, with a copy of the answer as far as that is
// kept. Repeats wait for that, whenever they come.
func TestStreamedAnswers(t *testing.T) {
	broken := errors.New("reset by peer")
	for _, tt := range []struct {
		name     string
		pieces   string
		end      error
		leaves   bool // the caller, after the first piece
		read     string
		at       []time.Duration // of the pieces and the end
		kept     string
		stored   time.Duration // when the end of the call is
		repeated error
	}{
		{"whole", "one two three", io.EOF, false, "one two three", seconds(2, 4, 6, 11), "onetwothree", 11 * time.Second, nil},
		{"longer than what is kept", "one twotwo threethree four", io.EOF, false, "one twotwo threethr ee four", seconds(2, 4, 6, 6, 8, 10), "onetwotwoth", 9 * time.Second, scheduler.NoAnswer},
		{"longer, and its end comes before it is stored", "one twotwo threethree", io.EOF, false, "one twotwo threethr ee", seconds(2, 4, 6, 6, 9), "onetwotwoth", 9 * time.Second, scheduler.NoAnswer},
		{"broken", "one two", broken, false, "one two", seconds(2, 4, 9), "onetwo", 9 * time.Second, scheduler.NoAnswer},
		{"the caller leaves", "one two three", io.EOF, true, "one", seconds(2), "onetwothree", 11 * time.Second, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stored(t, func(t *testing.T, db *store.DB) {
				up := &slow{pieces: strings.Fields(tt.pieces), end: tt.end}
				u := scheduler.Upstream{Durable: "true"}
				u.URL, u.Transport, u.MaxInspect, u.InspectDelay = "http://api.test", up, 11, time.Second
				s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: tardy{db}, Log: quiet})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				begin := time.Now()
				r := scheduler.Request{Upstream: "api", Method: "POST", Target: "/", IdempotencyKey: "k"}
				repeated := make(chan error, 3)
				repeat := func(after time.Duration) {
					time.Sleep(after)
					resp, known, err := s.Do(t.Context(), r)
					if took := time.Since(begin); took != tt.stored || known == nil || known.State != scheduler.Done {
						t.Errorf("a repeat has an answer after %v, want %v: %+v", took, tt.stored, known)
					}
					if err == nil {
						body, _ := io.ReadAll(resp.Body)
						if string(body) != tt.kept {
							t.Errorf("a repeat got %q, want %q", body, tt.kept)
						}
					}
					repeated <- err
				}
				go repeat(time.Second / 2)
				resp, c, err := s.Do(t.Context(), r)
				if err != nil || c.State != scheduler.Done || c.FinishedAt.IsZero() || time.Since(begin) != time.Second {
					t.Fatalf("%+v, %v after %v; want the answer's head within a second", c, err, time.Since(begin))
				}
				if got := state(t, s, c.ID); got != scheduler.Sending {
					t.Errorf("it is %s while the answer comes, want sending", got)
				}
				go repeat(0)
				go repeat(7500 * time.Millisecond) // the answer has ended, and that is not stored yet
				if tt.leaves {
					chunk := make([]byte, 8)
					n, err := resp.Body.Read(chunk)
					if string(chunk[:n]) != tt.read || err != nil {
						t.Errorf("%q, %v", chunk[:n], err)
					}
					resp.Body.Close()
					if _, err := resp.Body.Read(chunk); err == nil {
						t.Error("a closed answer goes on")
					}
				} else {
					read, at, end := piecewise(resp.Body, begin)
					if strings.Join(read, " ") != tt.read || !slices.Equal(at, tt.at) || end != tt.end {
						t.Errorf("%q at %v, and %v; want %q at %v, and %v", read, at, end, tt.read, tt.at, tt.end)
					}
					resp.Body.Close()
				}
				for range 3 {
					if err := <-repeated; !errors.Is(err, tt.repeated) || up.sent != 1 {
						t.Errorf("a repeat: %v, and %d requests; want %v, and one", err, up.sent, tt.repeated)
					}
				}
				got, err := s.Get(t.Context(), c.ID)
				if err != nil || got.State != scheduler.Done || string(got.Response.Body) != tt.kept || got.Response.Truncated != (tt.repeated != nil) {
					t.Errorf("stored: %+v, %+v, %v", got, got.Response, err)
				}
			})
		})
	}
}

// TestStopWhileAnAnswerStreams: a stop waits for an answer that streams as long as it may,
// and then stores what has come of it.
func TestStopWhileAnAnswerStreams(t *testing.T) {
	for name, patience := range map[string]time.Duration{"": time.Minute, "not ": 3500 * time.Millisecond} {
		t.Run(name+"to its end", func(t *testing.T) {
			stored(t, func(t *testing.T, db *store.DB) {
				u := scheduler.Upstream{Durable: "true"}
				u.URL, u.Transport, u.InspectDelay = "http://api.test", &slow{pieces: []string{"one", "two", "three"}, end: io.EOF}, time.Second
				s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: db, Log: quiet})
				if err != nil {
					t.Fatal(err)
				}
				resp, _, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Target: "/"})
				if err != nil {
					t.Fatal(err)
				}
				stopped := make(chan bool)
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					s.Shutdown(ctx)
					close(stopped)
				}()
				body, err := io.ReadAll(resp.Body)
				if whole := patience == time.Minute; string(body) != map[bool]string{true: "onetwothree", false: "onetwo"}[whole] || (err == nil) != whole {
					t.Errorf("the caller got %q, %v", body, err)
				}
				resp.Body.Close()
				<-stopped
			})
		})
	}
}

func seconds(at ...int) (all []time.Duration) {
	for _, s := range at {
		all = append(all, time.Duration(s)*time.Second)
	}
	return all
}
