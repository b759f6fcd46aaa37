package postgres

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// join enters a replica into the registry, and takes it out after the test.
func join(t *testing.T, url, name string) *Member {
	t.Helper()
	m, err := Join(t.Context(), url, Options{Name: name, Lease: short, Address: ":9191", Pin: "pin of " + name, Config: "limits of " + name, Version: "1", Wait: true, Log: quiet})
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
	seen := until(t, one, "replica two", func(v View) bool { return v.Find(two.ID) != nil })
	if got := seen.Find(two.ID).Config; got != "limits of two" {
		t.Errorf("replica two joins with the limits %q", got)
	}
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

// TestChangesAreToldAtOnce: replicas hear of one that joins, of the end of a term, and of the start of the next one, by notices, and
// not only at their next look.
func TestChangesAreToldAtOnce(t *testing.T) {
	url := newDatabase(t)
	first := claim(t, join(t, url, "one"))
	var slow []*Member // they look each 5 s
	var began time.Time
	for _, name := range []string{"two", "three"} {
		began = time.Now()
		m, err := Join(t.Context(), url, Options{Name: name, Lease: MaxLease, Wait: true, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Leave)
		until(t, m, "the owner", func(v View) bool { return v.Name == "one" })
		slow = append(slow, m)
	}
	until(t, slow[0], "all replicas", func(v View) bool { return len(v.Replicas) == 3 })
	first.Close()
	until(t, slow[1], "the end of the term", func(v View) bool { return v.Owner == "" })
	claim(t, slow[0])
	until(t, slow[1], "the next owner", func(v View) bool { return v.Name == "two" })
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
		if err := two.Move(t.Context(), to, scheduler.AuditRecord{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %q: %v, want %q", to, err, want)
		}
	}
	if err := two.Move(t.Context(), "three", scheduler.AuditRecord{}); err != nil {
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
	if err := one.Move(t.Context(), "", scheduler.AuditRecord{}); err != nil {
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

// TestMovesAreInTheAudit: while the owner keeps records too, each move has one, and neither takes the number of another.
func TestMovesAreInTheAudit(t *testing.T) {
	url := newDatabase(t)
	var all []*Member
	for _, name := range []string{"one", "two", "three"} {
		m, err := Join(t.Context(), url, Options{Name: name, Lease: 6 * time.Second, Wait: true, Log: quiet}) // a look may come late
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Leave)
		all = append(all, m)
	}
	one, two, three := all[0], all[1], all[2]
	d := claim(t, one)
	const each = 50
	var working sync.WaitGroup
	for _, m := range []*Member{two, three} {
		until(t, m, "three replicas", func(v View) bool { return len(v.Replicas) == 3 && v.Owner == one.ID })
		working.Go(func() {
			for range each {
				if err := m.Move(t.Context(), m.o.Name, scheduler.AuditRecord{Actor: m.o.Name}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range each {
		if err := d.Audit(t.Context(), scheduler.AuditRecord{Action: "pause", At: time.Now()}); err != nil {
			t.Error(err)
		}
	}
	working.Wait()
	for filter, want := range map[scheduler.AuditFilter]int{{}: 3 * each, {Action: "move"}: 2 * each, {Actor: "two"}: each, {Action: "pause"}: each} {
		if log, err := d.AuditLog(t.Context(), filter); err != nil || len(log) != want {
			t.Errorf("%+v: %d records, %v, want %d", filter, len(log), err, want)
		}
	}
}

// TestMoveDuringARecovery: a move waits while another transaction, as a recovery, holds the fence, and the owner beats meanwhile.
func TestMoveDuringARecovery(t *testing.T) {
	url := newDatabase(t)
	one, two := join(t, url, "one"), join(t, url, "two")
	d := claim(t, one)
	until(t, two, "the owner", func(v View) bool { return len(v.Replicas) == 2 && v.Owner == one.ID })
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM throttler.fence FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	moved := make(chan error, 1)
	go func() { moved <- two.Move(t.Context(), "two", scheduler.AuditRecord{Actor: "ann"}) }()
	waiting := connect(t, url)
	for n := 0; n == 0; time.Sleep(time.Millisecond) {
		if err := waiting.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'WITH changed%' AND wait_event_type = 'Lock'").Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	first := look(t, d).beat
	until(t, two, "beats", func(View) bool { s, _ := two.sight(); return s.row.beat > first+beats })
	select {
	case err := <-moved:
		t.Fatalf("the move ended: %v", err)
	case <-d.Failed():
		t.Fatalf("the term ended: %v", d.failure.get())
	default:
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	until(t, two, "the move", func(v View) bool { return v.Next == "two" })
	if log, err := d.AuditLog(t.Context(), scheduler.AuditFilter{}); err != nil || len(log) != 1 {
		t.Errorf("the audit has %+v, %v", log, err)
	}
}

// TestBury: a replica whose process has ended is followed at once, and limits are not held back for its attempts, also if
// the process has begun again under its name. A replica that lives is not buried, nor one that beats, and the beat of one
// that was buried all the same is refused.
func TestBury(t *testing.T) {
	url := newDatabase(t)
	const lease = 3 * time.Second
	m, err := Join(t.Context(), url, Options{Name: "one", Lease: lease, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	dead := claim(t, m)
	two := join(t, url, "two")
	until(t, two, "the owner", func(v View) bool { return v.Owner == m.ID })
	refused := func(state, name, want string) {
		t.Helper()
		if err := two.Bury(t.Context(), name, scheduler.AuditRecord{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", state, err, want)
		}
	}
	refused("a replica that lives", "one", "has not ended")
	refused("a replica that waits, and lives", "two", "has not ended")
	refused("a replica that is not there", "three", `no replica "three"`)
	m.stop() // it is heard of no more, and does not take itself out
	m.running.Wait()
	if _, err := two.pool.Exec(t.Context(), "INSERT INTO replicas (id, name, address, pin, version, config, seen_at) VALUES ($1, 'one', '', '', '', '', now() - interval '1 minute')", m.ID); err != nil {
		t.Fatal(err)
	}
	again := join(t, url, "one")
	until(t, two, "both lives", func(v View) bool { return v.Find(again.ID) != nil && v.Find(m.ID) != nil })
	refused("an owner that beats, and is not heard of", "one", "has not ended")
	crash(dead)
	until(t, two, "one does not beat", func(View) bool { s, _ := two.sight(); return s.still > lease/2 })
	if err := two.Bury(t.Context(), "one", scheduler.AuditRecord{Actor: "ann", Role: "operator", Via: "token", Reason: "host is gone"}); err != nil {
		t.Fatal(err)
	}
	d, err := two.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	log, err := d.AuditLog(t.Context(), scheduler.AuditFilter{})
	if err != nil || len(log) != 1 || log[0].Action != "bury" || log[0].Actor != "ann" || log[0].Role != "operator" || log[0].Via != "token" ||
		log[0].Before != "one, which has the calls" || log[0].After != "its process has ended" || log[0].Reason != "host is gone" || time.Since(log[0].At) > time.Minute {
		t.Errorf("the audit has %+v, %v", log, err)
	}
	if past := recover0(t, d); !past.Alive.IsZero() || !d.tenure.term.follows || d.Before() != "buried" {
		t.Errorf("after a burial: %+v", past)
	}
	if server, _, err := dead.tenure.ask(); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("the beat of a replica that was buried: %q, %v", server, err)
	}
	until(t, two, "one life of one", func(v View) bool { return v.Find(m.ID) == nil && v.Find(again.ID) != nil })
}

// TestBuryAfterABeat: a burial has no effect on an owner that has beaten since it was looked at.
func TestBuryAfterABeat(t *testing.T) {
	url := newDatabase(t)
	m := join(t, url, "one")
	d := claim(t, m)
	two := join(t, url, "two")
	until(t, two, "the owner", func(v View) bool { return v.Owner == m.ID })
	two.stop()
	two.running.Wait()
	two.mu.Lock()
	two.seen.still = time.Hour
	two.seen.Find(m.ID).Silence = time.Hour
	two.mu.Unlock()
	time.Sleep(short / 2) // some beats
	if err := two.Bury(t.Context(), "one", scheduler.AuditRecord{}); err == nil || !strings.Contains(err.Error(), "was heard of, or") {
		t.Errorf("an owner that has beaten: %v", err)
	}
	var exited bool
	if err := connect(t, url).QueryRow(t.Context(), "SELECT exited FROM throttler.lease").Scan(&exited); err != nil || exited || !d.Allowed() {
		t.Errorf("the owner is buried: %v, %v, allowed %v", exited, err, d.Allowed())
	}
}

// TestNamesake: a replica warns of another one that lives and has its name, and not of a life of its process before it.
func TestNamesake(t *testing.T) {
	url := newDatabase(t)
	if err := Migrate(t.Context(), url, Options{}); err != nil {
		t.Fatal(err)
	}
	log := &lockedText{}
	listen := func() *Member {
		m, err := Join(t.Context(), url, Options{Name: "one", Lease: short, Wait: true, Log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Leave)
		return m
	}
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), "INSERT INTO throttler.replicas (id, name, address, pin, version, config) VALUES ('a life before', 'one', '', '', '', '')"); err != nil {
		t.Fatal(err)
	}
	one := listen()
	views := 0
	until(t, one, "some views", func(v View) bool { views++; return v.Find("a life before") != nil && views > 3 })
	if text := log.String(); strings.Contains(text, "has the name of this one") {
		t.Errorf("a life before: %s", text)
	}
	two := listen()
	const want = "give each a name of its own (fleet.name)"
	until(t, two, "the warning", func(View) bool { return strings.Count(log.String(), want) == 2 })
	claim(t, one)
	until(t, two, "the owner", func(v View) bool { return v.Owner == one.ID })
	if err := two.Move(t.Context(), "one", scheduler.AuditRecord{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a move to a name that two have: %v", err)
	}
	until(t, one, "one more view", func(View) bool { views++; return views > 10 })
	if text := log.String(); strings.Count(text, want) != 2 {
		t.Errorf("it is told more than once: %s", text)
	}
}

// A lockedText is a log that may be read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
