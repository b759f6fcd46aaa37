// Package storetest holds every scheduler.Store to the scheduler's expectations
// of it, as testing/slogtest does for log handlers.
//
//	func TestStore(t *testing.T)   { storetest.Run(t, open) }
//	func TestDurable(t *testing.T) { storetest.RunDurable(t, open) }
//
// [NewEntry] makes a call to try a store with.
package storetest

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/uuid"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// NewEntry returns a waiting call of upstream "api"; a smaller seq is older.
func NewEntry(seq int64) *scheduler.Entry {
	now := time.Now().Truncate(time.Microsecond)
	return &scheduler.Entry{
		Call: &scheduler.Call{
			ID: uuid.Must(uuid.NewV7()).String(), Upstream: "api", State: scheduler.Waiting, Async: true, Durable: true,
			AcceptedAt: now, Deadline: now.Add(time.Hour), Attempts: []scheduler.Attempt{},
			Stored: &scheduler.Stored{Seq: seq, Class: 1},
		},
		Request: &upstream.Request{Method: "POST", Target: "/pay?n=1", Header: http.Header{"X-A": {"1", "2"}, "Soapaction": {"pay"}}, Names: []string{"SOAPAction"}, Body: []byte("body \x00\xff")},
		Bytes:   100,
	}
}

// With returns a copy of a call that was changed.
func With(c *scheduler.Call, change func(*scheduler.Call)) *scheduler.Call {
	next := *c
	next.Attempts = slices.Clone(c.Attempts)
	stored := *c.Stored
	next.Stored = &stored
	change(&next)
	return &next
}

// Sent returns the call as it is when it is being sent.
func Sent(c *scheduler.Call, holds ...lease.Hold) *scheduler.Call {
	return With(c, func(c *scheduler.Call) {
		c.State, c.Outstanding = scheduler.Sending, holds
		c.Attempts = append(c.Attempts, scheduler.Attempt{N: len(c.Attempts) + 1, SentAt: time.Now()})
	})
}

// Ended returns the call as it is after its attempt.
func Ended(c *scheduler.Call, as scheduler.State) *scheduler.Call {
	return With(c, func(c *scheduler.Call) {
		now := time.Now().Truncate(time.Microsecond)
		c.State = as
		last := c.Last()
		last.EndedAt, last.Outcome, last.Status = now, upstream.Done, 200
		c.Response = &scheduler.Response{Status: 200, Headers: http.Header{"X-B": {"3"}}, Body: []byte("answer")}
		if as.Finished() {
			c.FinishedAt = now
		}
	})
}

// Stepped returns the reading of the wall clock at an instant, a result of time.Now, after a
// step of that clock. In the layout of a time the monotonic reading is the second word.
func Stepped(t testing.TB, at time.Time, by time.Duration) time.Time {
	t.Helper()
	after := at.Add(by)
	*(*int64)(unsafe.Add(unsafe.Pointer(&after), 8)) -= int64(by)
	if after.Sub(at) != 0 || after.Round(0).Sub(at.Round(0)) != by {
		t.Fatalf("%v is no reading after a step of %v", after, by)
	}
	return after
}

type suite struct {
	*testing.T
	s   scheduler.Store
	seq int64
}

func (t *suite) accept(change ...func(*scheduler.Entry)) *scheduler.Entry {
	t.Helper()
	t.seq++
	e := NewEntry(t.seq)
	for _, f := range change {
		f(e)
	}
	if existing, err := t.s.Accept(t.Context(), e); err != nil || existing != nil {
		t.Fatalf("Accept: %v, %v", existing, err)
	}
	return e
}

func (t *suite) intend(c *scheduler.Call, take ...lease.Hold) {
	t.Helper()
	if err := t.s.Intend(t.Context(), c, take); err != nil {
		t.Fatalf("Intend: %v", err)
	}
}

func (t *suite) record(c *scheduler.Call) {
	t.Helper()
	if err := t.s.Record(t.Context(), c); err != nil {
		t.Fatalf("Record: %v", err)
	}
}

func (t *suite) get(id string) *scheduler.Call {
	t.Helper()
	c, err := t.s.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return c
}

// Run tests stores that open makes, each a new one.
func Run(t *testing.T, open func(t *testing.T) scheduler.Store) {
	for name, test := range map[string]func(t *suite){
		"a life":                              life,
		"intents only of waiting calls":       intents,
		"what is finished stays":              finished,
		"idempotency keys":                    keys,
		"the key of a call that waited long":  waitedLong,
		"one key, many callers":               race,
		"what was not executed frees its key": freed,
		"identities":                          identities,
		"ends of identities":                  ends,
		"numbers":                             numbers,
		"facts":                               facts,
		"lists":                               lists,
		"a list while calls change":           listsMeanwhile,
		"what is returned is the caller's":    copies,
		"decisions":                           decisions,
		"changes of waiting calls":            edits,
		"audit":                               audit,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			defer s.Close()
			if d, ok := s.(scheduler.Durable); ok {
				if _, err := d.Recover(t.Context(), 0, nil); err != nil {
					t.Fatal(err)
				}
			}
			test(&suite{T: t, s: s})
		})
	}
}

func life(t *suite) {
	e := t.accept(func(e *scheduler.Entry) { e.Call.Callback, e.Call.Resolves = "shop", "another" })
	if c := t.get(e.Call.ID); c.State != scheduler.Waiting || c.Callback != "shop" || c.Resolves != "another" || !c.AcceptedAt.Equal(e.Call.AcceptedAt) || !c.Deadline.Equal(e.Call.Deadline) || len(c.Attempts) != 0 || c.Response != nil {
		t.Errorf("accepted: %+v", c)
	}
	sent := Sent(e.Call)
	t.intend(sent)
	if c := t.get(e.Call.ID); c.State != scheduler.Sending || len(c.Attempts) != 1 || c.Attempts[0].N != 1 {
		t.Errorf("sent: %+v", c)
	}
	t.record(Ended(sent, scheduler.Unknown))
	if c := t.get(e.Call.ID); c.State != scheduler.Unknown || c.Response == nil {
		t.Errorf("unknown: %+v", c)
	}
	end := Ended(sent, scheduler.Done)
	t.record(end)
	c := t.get(e.Call.ID)
	if c.State != scheduler.Done || !c.FinishedAt.Equal(end.FinishedAt) || c.Attempts[0].Outcome != upstream.Done || !reflect.DeepEqual(c.Response, end.Response) {
		t.Errorf("done: %+v, response %+v", c, c.Response)
	}
	left := t.accept().Call
	t.record(With(left, func(c *scheduler.Call) { c.State, c.Reason = scheduler.Cancelled, scheduler.Gone }))
	if c := t.get(left.ID); c.State != scheduler.Cancelled || c.Reason != scheduler.Gone || len(c.Attempts) != 0 {
		t.Errorf("left by its caller: %+v", c)
	}
	if _, err := t.s.Get(t.Context(), "none"); !errors.Is(err, scheduler.ErrNotFound) {
		t.Errorf("Get of an unknown id: %v", err)
	}
}

func intents(t *suite) {
	e := t.accept()
	sent := Sent(e.Call)
	t.intend(sent)
	if err := t.s.Intend(t.Context(), sent, nil); !errors.Is(err, scheduler.ErrNotWaiting) {
		t.Errorf("a second intent: %v, want ErrNotWaiting", err)
	}
	t.record(With(sent, func(c *scheduler.Call) { c.State = scheduler.Waiting }))
	t.intend(sent)
	t.record(Ended(sent, scheduler.Failed))
	if err := t.s.Intend(t.Context(), sent, nil); !errors.Is(err, scheduler.ErrNotWaiting) {
		t.Errorf("an intent after the end: %v, want ErrNotWaiting", err)
	}
	if err := t.s.Intend(t.Context(), Sent(NewEntry(99).Call), nil); !errors.Is(err, scheduler.ErrNotWaiting) {
		t.Errorf("an intent of a call that is not there: %v, want ErrNotWaiting", err)
	}
	if err := t.s.Intend(t.Context(), nil, nil); err != nil {
		t.Errorf("no call, no holds: %v", err)
	}
}

func finished(t *suite) {
	e := t.accept()
	sent := Sent(e.Call)
	t.intend(sent)
	t.record(Ended(sent, scheduler.Done))
	if err := t.s.Record(t.Context(), Ended(sent, scheduler.Failed)); !errors.Is(err, scheduler.ErrNotFound) {
		t.Errorf("a second end: %v, want ErrNotFound", err)
	}
	if c := t.get(e.Call.ID); c.State != scheduler.Done {
		t.Errorf("the call is %s after it was done", c.State)
	}
}

func withKey(key, fingerprint string) func(*scheduler.Entry) {
	return func(e *scheduler.Entry) { e.Key, e.Fingerprint = key, fingerprint }
}

func (t *suite) again(key, fingerprint string) (*scheduler.Call, error) {
	t.seq++
	e := NewEntry(t.seq)
	e.Key, e.Fingerprint = key, fingerprint
	found, findErr := t.s.Find(t.Context(), e)
	c, err := t.s.Accept(t.Context(), e)
	if (found == nil) != (c == nil) || found != nil && found.ID != c.ID || errors.Is(findErr, scheduler.ErrKeyReused) != errors.Is(err, scheduler.ErrKeyReused) {
		t.Errorf("Find: %+v, %v; Accept: %+v, %v; want the same", found, findErr, c, err)
	}
	if _, known := t.s.Get(t.Context(), e.Call.ID); known == nil && (c != nil || err != nil) {
		t.Errorf("a call was stored although its key is taken")
	}
	return c, err
}

func keys(t *suite) {
	e := t.accept(withKey("k", "f"))
	t.accept(withKey("other", "f"))
	if c, err := t.again("k", "f"); err != nil || c == nil || c.ID != e.Call.ID || c.State != scheduler.Waiting {
		t.Errorf("the same key and content: %+v, %v; want the first call", c, err)
	}
	if _, err := t.again("k", "g"); !errors.Is(err, scheduler.ErrKeyReused) {
		t.Errorf("the same key, other content: %v, want ErrKeyReused", err)
	}
	sent := Sent(e.Call)
	t.intend(sent)
	t.record(Ended(sent, scheduler.Done))
	if c, err := t.again("k", "f"); err != nil || c == nil || c.ID != e.Call.ID || c.Response == nil || string(c.Response.Body) != "answer" {
		t.Errorf("after the end: %+v, %v; want the first call with its answer", c, err)
	}
}

// waitedLong: a key is kept from the end of its call on, not from its acceptance.
func waitedLong(t *suite) {
	e := t.accept(withKey("k", "f"), func(e *scheduler.Entry) { e.Call.AcceptedAt = time.Now().AddDate(-1, 0, 0) })
	sent := Sent(e.Call)
	t.intend(sent)
	t.record(Ended(sent, scheduler.Done))
	if c, err := t.again("k", "f"); err != nil || c == nil || c.ID != e.Call.ID {
		t.Errorf("after the end: %+v, %v; want the call that has just ended", c, err)
	}
}

func race(t *suite) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := make(map[string]int)
	for i := range int64(32) {
		wg.Go(func() {
			e := NewEntry(i + 1)
			e.Key, e.Fingerprint = "k", "f"
			c, err := t.s.Accept(t.Context(), e)
			if err != nil {
				t.Error(err)
				return
			}
			if c == nil {
				c = e.Call
			}
			mu.Lock()
			ids[c.ID]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Errorf("one key names %d calls", len(ids))
	}
}

func freed(t *suite) {
	for _, end := range []scheduler.State{scheduler.Cancelled, scheduler.Expired, scheduler.Exhausted} {
		e := t.accept(withKey(string(end), "f"))
		t.record(With(e.Call, func(c *scheduler.Call) { c.State, c.FinishedAt = end, time.Now() }))
		if c, err := t.again(string(end), "g"); err != nil || c != nil {
			t.Errorf("%s: %+v, %v; want a new call", end, c, err)
		}
		if c, err := t.again(string(end), "g"); err != nil || c == nil || c.ID == e.Call.ID {
			t.Errorf("%s, and then once more: %+v, %v; want the new call", end, c, err)
		}
	}
	for _, end := range []scheduler.State{scheduler.Unknown, scheduler.Failed} {
		sent := Sent(t.accept(withKey(string(end), "f")).Call)
		t.intend(sent)
		t.record(Ended(sent, end))
		if c, err := t.again(string(end), "f"); err != nil || c == nil || c.ID != sent.ID {
			t.Errorf("%s: %+v, %v; want the first call", end, c, err)
		}
	}
}

func copies(t *suite) {
	e := t.accept()
	sent := Sent(e.Call)
	t.intend(sent)
	c := t.get(e.Call.ID)
	c.State, c.Attempts[0].N = scheduler.Failed, 9
	if again := t.get(e.Call.ID); again.State != scheduler.Sending || again.Attempts[0].N != 1 {
		t.Errorf("a caller's change came through: %+v", again)
	}
	if fmt.Sprint(sent.State) != "sending" {
		t.Errorf("what was handed over was changed: %+v", sent)
	}
}
