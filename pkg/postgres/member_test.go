package postgres

import (
	"context"
	"strings"
	"testing"
	"time"
)

// join enters a replica into the registry, and takes it out after the test.
func join(t *testing.T, url, name string) *Member {
	t.Helper()
	m, err := Join(t.Context(), url, Options{Name: name, Lease: short, Address: ":9191", Pin: "pin of " + name, Version: "1", Wait: true, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Leave)
	return m
}

// until waits until a view of a member is as wanted.
func until(t *testing.T, m *Member, wanted string, is func(View) bool) View {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		v, next := m.View()
		if is(v) {
			return v
		}
		select {
		case <-next:
		case <-deadline:
			t.Fatalf("%s: not within a minute; the view is %+v", wanted, v)
		}
	}
}

func claim(t *testing.T, m *Member) *DB {
	t.Helper()
	d, err := m.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	recover0(t, d)
	return d
}

// TestRegistry: each member sees all others, and the owner; one that has left is gone.
func TestRegistry(t *testing.T) {
	url := newDatabase(t)
	one, two := join(t, url, "one"), join(t, url, "two")
	d := claim(t, one)
	two.Configured("abc")
	v := until(t, one, "both replicas, the owner, and the limits of two", func(v View) bool {
		return len(v.Replicas) == 2 && v.Owner == one.ID && v.Replicas[1].Config == "abc"
	})
	r := v.Find(two.ID)
	if r == nil || r.Name != "two" || r.Address != "127.0.0.1:9191" || r.Pin != "pin of two" || r.Version != "1" || r.Silence > time.Minute || time.Since(r.Joined) > time.Minute {
		t.Errorf("replica two is %+v", r)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	one.Leave()
	until(t, two, "one has left", func(v View) bool { return len(v.Replicas) == 1 && v.Owner == "" && v.Find(one.ID) == nil })
}

// TestTakeOverIsToldAtOnce: a replica that waits hears of the end of a term by a notice, and not only at its next
// look.
func TestTakeOverIsToldAtOnce(t *testing.T) {
	url := newDatabase(t)
	first := claim(t, join(t, url, "one"))
	slow, err := Join(t.Context(), url, Options{Name: "two", Lease: MaxLease, Wait: true, Log: quiet}) // it looks each 5 s
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(slow.Leave)
	until(t, slow, "the owner", func(v View) bool { return v.Name == "one" })
	began := time.Now()
	first.Close()
	claim(t, slow)
	if took := time.Since(began); took > MaxLease/beats-time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestMove: the owner learns that it is to hand over; the replica that was named comes before others, and the last owner
// comes last.
func TestMove(t *testing.T) {
	url := newDatabase(t)
	one, two, three := join(t, url, "one"), join(t, url, "two"), join(t, url, "three")
	d := claim(t, one)
	until(t, two, "all replicas", func(v View) bool { return len(v.Replicas) == 3 && v.Owner == one.ID })
	for to, want := range map[string]string{"one": "has the calls already", "four": `no replica "four"`} {
		if err := two.Move(t.Context(), to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %q: %v, want %q", to, err, want)
		}
	}
	if err := two.Move(t.Context(), "three"); err != nil {
		t.Fatal(err)
	}
	until(t, one, "the owner is asked", func(v View) bool { return v.Next == "three" })
	got := make(chan *Member, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	compete := func(m *Member) {
		if d, err := m.Claim(ctx); err == nil {
			recover0(t, d)
			got <- m
			<-ctx.Done()
			d.Close()
		}
	}
	go compete(two)
	until(t, two, "one is the owner", func(v View) bool { return v.Owner == one.ID })
	d.Close()
	go compete(three)
	if m := <-got; m != three {
		t.Errorf("%s has the calls, want three", m.o.Name)
	}
}

// TestMoveAnywhere: without a name the calls go to another replica than their owner.
func TestMoveAnywhere(t *testing.T) {
	url := newDatabase(t)
	one, two := join(t, url, "one"), join(t, url, "two")
	d := claim(t, one)
	until(t, one, "both", func(v View) bool { return len(v.Replicas) == 2 && v.Owner == one.ID })
	if err := one.Move(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	until(t, one, "the owner is asked", func(v View) bool { return v.Next == anyReplica })
	d.Close()
	s, _ := one.sight()
	if s.Owner = ""; one.mayTake(&s) {
		t.Error("the last owner may take the calls that it gives away")
	}
	s.row.offered = time.Hour
	if !one.mayTake(&s) {
		t.Error("nobody else has come, and the last owner may not take the calls back")
	}
	claim(t, two)
}

// TestBury: a replica whose process has ended is followed at once, and limits are not held back for its attempts. A
// replica that lives is not buried, and one that was all the same ends its term.
func TestBury(t *testing.T) {
	url := newDatabase(t)
	m, err := Join(t.Context(), url, Options{Name: "one", Lease: MaxLease, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	dead := claim(t, m)
	two := join(t, url, "two")
	until(t, two, "the owner", func(v View) bool { return v.Owner == m.ID })
	if err := two.Bury(t.Context(), "one"); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("a replica that lives: %v", err)
	}
	if err := two.Bury(t.Context(), "three"); err == nil || !strings.Contains(err.Error(), `no replica "three"`) {
		t.Errorf("a replica that is not there: %v", err)
	}
	crash(dead)
	m.stop() // it is heard of no more, and does not take itself out
	m.running.Wait()
	if _, err := two.pool.Exec(t.Context(), "INSERT INTO replicas (id, name, address, pin, version, config, seen_at) VALUES ($1, 'one', '', '', '', '', now() - interval '1 minute')", m.ID); err != nil {
		t.Fatal(err)
	}
	until(t, two, "one is silent", func(v View) bool { r := v.Find(m.ID); return r != nil && r.Silence > time.Second })
	if err := two.Bury(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	d, err := two.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if past := recover0(t, d); !past.Alive.IsZero() || !d.tenure.term.follows {
		t.Errorf("after a burial: %+v", past)
	}
	if over, err := dead.tenure.ask(); !over || err != nil {
		t.Errorf("the beat of a replica that was buried: over %v, %v", over, err)
	}
}
