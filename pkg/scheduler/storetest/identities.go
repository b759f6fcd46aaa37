package storetest

import (
	"errors"
	"maps"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// named returns an entry with a key and an identity, each empty for none.
func (t *suite) named(key, identity, fingerprint string) *scheduler.Entry {
	t.seq++
	e := NewEntry(t.seq)
	e.Key, e.Identity, e.Fingerprint = key, identity, fingerprint
	return e
}

// known asserts which call an entry finds, in Find as in Accept; nil means that it is new.
func (t *suite) known(what string, e *scheduler.Entry, want *scheduler.Entry) {
	t.Helper()
	found, findErr := t.s.Find(t.Context(), e)
	c, err := t.s.Accept(t.Context(), e)
	if findErr != nil || err != nil {
		t.Errorf("%s: Find %v, Accept %v", what, findErr, err)
		return
	}
	for _, got := range []*scheduler.Call{found, c} {
		if (got == nil) != (want == nil) || want != nil && got.ID != want.Call.ID {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	if _, err := t.s.Get(t.Context(), e.Call.ID); (err == nil) != (want == nil) {
		t.Errorf("%s: the call is stored: %v", what, err == nil)
	}
}

func identities(t *suite) {
	first := t.named("k", "pay 1", "f")
	t.known("the first call", first, nil)
	t.known("the identity again", t.named("", "pay 1", "f"), first)
	t.known("the identity under another key", t.named("l", "pay 1", "f"), first)
	t.known("that key is free", t.named("l", "", "g"), nil)
	t.known("the key without the identity", t.named("k", "pay 2", "f"), first)
	t.known("that identity is free", t.named("", "pay 2", "g"), nil)
	if _, err := t.s.Find(t.Context(), t.named("", "pay 1", "g")); !errors.Is(err, scheduler.ErrKeyReused) {
		t.Errorf("other content: Find %v, want ErrKeyReused", err)
	}
	if _, err := t.s.Accept(t.Context(), t.named("", "pay 1", "g")); !errors.Is(err, scheduler.ErrKeyReused) {
		t.Errorf("other content: Accept %v, want ErrKeyReused", err)
	}
	for _, end := range scheduler.States {
		e := t.named("", "pay "+string(end), "f")
		t.known(string(end)+", the first call", e, nil)
		switch {
		case end == scheduler.Done, end == scheduler.Failed, end == scheduler.Unknown:
			sent := Sent(e.Call)
			t.intend(sent)
			t.record(Ended(sent, end))
		case end.Finished():
			t.record(With(e.Call, func(c *scheduler.Call) { c.State, c.FinishedAt = end, time.Now() }))
		}
		want := e
		if end.Finished() && end != scheduler.Done {
			want = nil
		}
		t.known(string(end), t.named("", "pay "+string(end), "f"), want)
	}
}

func ends(t *suite) {
	endedBy := func(identity, want string) {
		t.Helper()
		if by, err := t.s.EndedBy(t.Context(), identity); by != want || err != nil {
			t.Errorf("%q is ended by %q, %v; want %q", identity, by, err, want)
		}
	}
	paid := t.named("k", "pay 1", "f")
	t.known("the payment", paid, nil)
	endedBy("pay 1", "")
	for _, by := range []string{"a", "b"} {
		for _, identity := range []string{"pay 1", "pay 2"} {
			if err := t.s.End(t.Context(), identity, by); err != nil {
				t.Fatal(err)
			}
			endedBy(identity, by)
		}
	}
	endedBy("k", "")
	endedBy("pay 3", "")
	t.known("with any fingerprint", t.named("", "pay 1", ""), paid)
}

func numbers(t *suite) {
	want := map[string]string{"order": "20150320010101001", "refund": "R\"1\"\x00"}
	e := t.accept(func(e *scheduler.Entry) { e.Call.Numbers = want })
	sent := Sent(e.Call)
	t.intend(sent)
	for _, end := range []scheduler.State{scheduler.Sending, scheduler.Unknown, scheduler.Done} {
		if end != scheduler.Sending {
			t.record(Ended(sent, end))
		}
		if c := t.get(e.Call.ID); c.State != end || !maps.Equal(c.Numbers, want) {
			t.Errorf("%s: %s with numbers %q, want %q", end, c.State, c.Numbers, want)
		}
		page, err := t.s.List(t.Context(), scheduler.Filter{})
		if err != nil || len(page.Calls) != 1 || !maps.Equal(page.Calls[0].Numbers, want) {
			t.Errorf("%s: a list has %+v, %v", end, page, err)
		}
	}
	if c := t.get(t.accept().Call.ID); c.Numbers != nil {
		t.Errorf("a call without numbers has %q", c.Numbers)
	}
}
