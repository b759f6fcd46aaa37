package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// short is the lease of tests that wait for its end.
const short = MinLease

func recover0(t testing.TB, d *DB) *scheduler.Recovered {
	t.Helper()
	state, err := d.Recover(context.Background(), time.Minute, func(*scheduler.Entry) (time.Time, bool) { return time.Time{}, false })
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// crash ends the goroutines of a store as the end of its process would: it tells the server nothing.
func crash(d *DB) { d.failure.set(errors.New("the test has ended it")) }

// TestWatch: an owner is silent if its beat was seen unchanged for longer than its lease, in views
// without a gap.
func TestWatch(t *testing.T) {
	begin := time.Now()
	for name, tt := range map[string]struct {
		views  map[time.Duration]int64 // beats by instant; negative: the view failed
		at     time.Duration           // of the last view, of beat 1
		silent bool
	}{
		"for the lease":            {map[time.Duration]int64{0: 1}, 2 * time.Second, false},
		"for longer, by the drift": {map[time.Duration]int64{0: 1}, 2*time.Second + 100*time.Millisecond, false},
		"for even longer":          {map[time.Duration]int64{0: 1}, 2*time.Second + 101*time.Millisecond, true},
		"it has beaten":            {map[time.Duration]int64{0: 0, time.Second: 1}, 3 * time.Second, false},
		"nothing was seen":         {map[time.Duration]int64{0: 1, time.Second: -1}, time.Hour, false},
	} {
		var w watch
		silent := false
		for _, at := range []time.Duration{0, time.Second, tt.at} {
			beat, seen := tt.views[at]
			switch s := (leaseRow{epoch: 1, owner: "a", beat: beat, lease: 2 * time.Second}); {
			case at == tt.at:
				s.beat = 1
				silent = w.sees(begin.Add(at), &s)
			case seen && beat < 0:
				w.sees(begin.Add(at), nil)
			case seen:
				w.sees(begin.Add(at), &s)
			}
		}
		if silent != tt.silent {
			t.Errorf("%s: silent %v, want %v", name, silent, tt.silent)
		}
	}
}

// TestOneOwner: a second replica is refused while the first one lives, and follows it after its end: at
// once after Close, and after its lease else. Only then attempts may go on.
func TestOneOwner(t *testing.T) {
	url := newDatabase(t)
	first := open(t, url, Options{Name: "one"}) // with a lease that no slow disk outlasts
	recover0(t, first)
	if !first.Allowed() {
		t.Fatal("the owner may not send")
	}
	if _, err := Open(t.Context(), url, Options{Lease: short, Log: quiet}); err == nil || !strings.Contains(err.Error(), `replica "one" has the calls, and lives`) {
		t.Fatalf("a second owner: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, url, Options{Lease: short, Name: "two"})
	if past := recover0(t, second); !past.Alive.IsZero() || second.tenure.term.follows {
		t.Errorf("after Close: %+v", past)
	}
	crash(second)
	if second.Allowed() {
		t.Error("an owner that has failed may send")
	}
	began := time.Now()
	third := open(t, url, Options{Lease: short, Name: "three", Wait: true})
	if past := recover0(t, third); past.Alive.Before(began) || past.Alive.After(time.Now()) {
		t.Errorf("after a crash: alive until %v, want the instant of the claim", past.Alive)
	}
	if past := recover0(t, third); !past.Alive.IsZero() {
		t.Errorf("a second recovery of one term: %+v", past)
	}
}

// TestWaitIsCut: a replica that waits for its turn ends with its ctx.
func TestWaitIsCut(t *testing.T) {
	url := newDatabase(t)
	open(t, url, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	if _, err := Open(ctx, url, Options{Lease: short, Wait: true, Log: quiet}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the end of ctx", err)
	}
}

// TestFence: the changes of an owner whose term another one has taken have no effect, and end its
// store, whether or not it knows of the other one.
func TestFence(t *testing.T) {
	url := newDatabase(t)
	first := open(t, url, Options{Lease: MaxLease})
	recover0(t, first)
	e := storetest.NewEntry(1)
	if _, err := first.Accept(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	s := look(t, first)
	won, err := take(t.Context(), first.db, s, &Member{ID: "other", o: Options{Lease: short, Name: "other"}})
	if err != nil || won == nil {
		t.Fatalf("%v, %v", won, err)
	}
	if again, err := take(t.Context(), first.db, s, &Member{ID: "third", o: Options{Lease: short, Name: "third"}}); again != nil || err != nil {
		t.Errorf("the row has changed since it was seen, and was taken: %v, %v", again, err)
	}
	for name, change := range map[string]func() error{
		"an intent": func() error { return first.Intend(t.Context(), storetest.Sent(e.Call), nil) },
		"a call":    func() error { _, err := first.Accept(t.Context(), storetest.NewEntry(2)); return err },
	} {
		if err := change(); !errors.Is(err, scheduler.ErrBroken) || !errors.Is(err, ErrTermOver) {
			t.Errorf("%s after the end of the term: %v", name, err)
		}
	}
	if first.Allowed() {
		t.Error("it may still send")
	}
	calls, flights := 0, 0
	if err := first.db.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM calls), (SELECT count(*) FROM flights)").Scan(&calls, &flights); err != nil || calls != 1 || flights != 0 {
		t.Errorf("%d calls, %d flights, %v; want the first call alone", calls, flights, err)
	}
}

// TestFenceAlone: the fence holds back a session that goes on.
func TestFenceAlone(t *testing.T) {
	d := open(t, newDatabase(t), Options{Lease: MaxLease})
	recover0(t, d)
	if _, err := d.db.Exec(t.Context(), "UPDATE fence SET epoch = epoch + 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Accept(t.Context(), storetest.NewEntry(1)); !errors.Is(err, ErrTermOver) {
		t.Errorf("a call after the end of the term: %v", err)
	}
	calls := -1
	if err := d.db.QueryRow(t.Context(), "SELECT count(*) FROM calls").Scan(&calls); err != nil || calls != 0 {
		t.Errorf("%d calls, %v; want none", calls, err)
	}
}

// TestRegress: an owner whose server was put back to an earlier state ends, and says why. To the next one the calls that wait
// are unknown, as they may have been sent by commits that are gone, and what has arrived is left to a person.
func TestRegress(t *testing.T) {
	url := newDatabase(t)
	d := open(t, url, Options{Lease: MaxLease})
	recover0(t, d)
	waits := accepted(t, d).Call
	if _, err := d.db.Exec(t.Context(), "SELECT throttler.submit('api', 'POST', '/')"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.db.Exec(t.Context(), "UPDATE fence SET number = number - 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Accept(t.Context(), storetest.NewEntry(99)); !errors.Is(err, errRegressed) || !errors.Is(err, ErrTermOver) || !errors.Is(err, scheduler.ErrBroken) {
		t.Errorf("a call after commits were lost: %v", err)
	}
	d.Close()
	next := open(t, url, Options{Lease: short})
	if state := recover0(t, next); !state.Restored || state.Interrupted != 1 || state.Backlog["api"].Unknown != 1 {
		t.Errorf("%+v, want one call that is unknown", state)
	}
	if c, err := next.Get(t.Context(), waits.ID); err != nil || c.State != scheduler.Unknown || c.Last() == nil || c.Last().Reason != wasLost {
		t.Errorf("the call that waited: %+v, %v", c, err)
	}
	counted(t, next, "SELECT count(*) FROM arrivals WHERE doubtful", 1)
	if err := next.Restate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if next.Close(); recover0(t, open(t, url, Options{Lease: short})).Restored {
		t.Error("the loss is told twice")
	}
}

// TestRegressSeen: a replica that has seen a commit notes its loss, also if the owner that made it is gone. No epoch is used
// twice.
func TestRegressSeen(t *testing.T) {
	url := newDatabase(t)
	open(t, url, Options{Lease: short}).Close() // the first term
	m, err := Join(t.Context(), url, Options{Lease: short, Wait: true, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Leave()
	d := open(t, url, Options{Lease: short})
	recover0(t, d)
	accepted(t, d)
	for v, next := m.sight(); v.row.committed != (position{2, d.writer.number}); v, next = m.sight() {
		<-next
	}
	crash(d)
	<-d.tenure.ended
	if _, err := m.pool.Exec(t.Context(), "UPDATE lease SET epoch = 1, owner = 'gone', beat = 0"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.pool.Exec(t.Context(), "UPDATE fence SET epoch = 1, number = 0"); err != nil {
		t.Fatal(err)
	}
	next, err := m.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if state := recover0(t, next); !state.Restored || next.writer.epoch != 3 {
		t.Errorf("the term %d, %+v; want 3, and the loss", next.writer.epoch, state)
	}
}

// TestRegressOfOwnTerm: an owner whose term is lost before it has looked at the fleet notes the loss.
func TestRegressOfOwnTerm(t *testing.T) {
	m, err := Join(t.Context(), newDatabase(t), Options{Lease: 2 * time.Second, Wait: true, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Leave()
	d, err := m.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	recover0(t, d)
	accepted(t, d)
	crash(d)
	for _, statement := range []string{"UPDATE lease SET epoch = 0, owner = ''", "UPDATE fence SET epoch = 0, number = 0, mark = ''"} {
		if _, err := m.pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for v, next := m.sight(); v.row.epoch != 1 || v.row.owner != ""; v, next = m.sight() {
		select {
		case <-next:
		case <-time.After(20 * time.Second):
			t.Fatal("the loss is not noted")
		}
	}
	for _, epoch := range []int64{2, 3} { // the first one ends before its limits that are full are stored
		next, err := m.Claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if state := recover0(t, next); !state.Restored || next.writer.epoch != epoch {
			t.Errorf("the term %d, %+v; want %d, and the loss", next.writer.epoch, state, epoch)
		}
		if epoch == 3 {
			if err := next.Restate(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		next.Close()
	}
	last, err := m.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	if state := recover0(t, last); state.Restored {
		t.Error("a loss is told again that is over")
	}
}

// TestLossWithinATerm: a replica that has seen a lost term notes that when another owner has recovered without knowing of it. The
// term of that owner ends, and the next one knows.
func TestLossWithinATerm(t *testing.T) {
	url := newDatabase(t)
	d := open(t, url, Options{Lease: short})
	recover0(t, d)
	admin := connect(t, url)
	if _, err := admin.Exec(t.Context(), "SET search_path TO throttler"); err != nil {
		t.Fatal(err)
	}
	if err := noteLoss(t.Context(), admin, 1); err != nil {
		t.Fatal(err)
	}
	if err := d.Restate(t.Context(), nil); !errors.Is(err, ErrTermOver) {
		t.Errorf("the term goes on: %v", err)
	}
	d.Close()
	next := open(t, url, Options{Lease: short, Wait: true})
	if state := recover0(t, next); !state.Restored {
		t.Error("the loss is forgotten")
	}
	if err := next.Restate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := noteLoss(t.Context(), admin, 2); err != nil {
		t.Fatal(err)
	}
	select {
	case <-next.Failed(): // though it stores nothing
	case <-time.After(20 * time.Second):
		t.Error("the next term goes on")
	}
}

// TestEpochOfALostTerm: the server is put back to before a term, and another replica begins one of the same epoch. The first
// owner, which has not noticed, writes nothing in it.
func TestEpochOfALostTerm(t *testing.T) {
	url := newDatabase(t)
	frozen := open(t, url, Options{Lease: MaxLease})
	recover0(t, frozen)
	frozen.member.stop() // it does not look
	frozen.member.running.Wait()
	if _, err := frozen.db.Exec(t.Context(), "WITH f AS (UPDATE fence SET epoch = 0, number = 0) UPDATE lease SET epoch = 0, owner = ''"); err != nil {
		t.Fatal(err)
	}
	next := open(t, url, Options{Lease: MaxLease})
	recover0(t, next)
	if next.writer.epoch != frozen.writer.epoch {
		t.Fatalf("the epochs are %d and %d", frozen.writer.epoch, next.writer.epoch)
	}
	if _, err := frozen.Accept(t.Context(), storetest.NewEntry(99)); !errors.Is(err, ErrTermOver) {
		t.Errorf("a call of the lost term: %v, want that the term is over", err)
	}
}

// TestBeatOfAnother: an owner that finds another one in its place ends.
func TestBeatOfAnother(t *testing.T) {
	url := newDatabase(t)
	d := open(t, url, Options{Lease: short})
	if _, err := d.db.Exec(t.Context(), "UPDATE lease SET owner = 'another', epoch = epoch + 1"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.Failed():
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	if err := d.Settle(t.Context(), nil); !errors.Is(err, ErrTermOver) {
		t.Errorf("%v, want the end of the term", err)
	}
}

// TestStoppedWriter: a session of the last owner that holds the fence, as that of a process that was stopped
// in a transaction does, is ended by the next one; its change has no effect.
func TestStoppedWriter(t *testing.T) {
	url := newDatabase(t)
	d := open(t, url, Options{Lease: MaxLease})
	recover0(t, d)
	config, err := parse(url, Options{Lease: MaxLease})
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["application_name"] = writerName(d.tenure.term.epoch)
	stopped, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close(context.Background())
	if _, err := stopped.Exec(t.Context(), "BEGIN; UPDATE fence SET number = number + 1"); err != nil {
		t.Fatal(err)
	}
	if won, err := take(t.Context(), d.db, look(t, d), &Member{ID: "other", o: Options{Lease: short}}); won == nil || err != nil {
		t.Fatalf("the claim: %v, %v", won, err)
	}
	if _, err := stopped.Exec(t.Context(), "COMMIT"); err == nil {
		t.Error("the session that was stopped commits")
	}
}

// TestClosedWithoutRecovery: a replica that followed one that had crashed, and ends before it has taken over
// its calls, does not hide the crash from the next one.
func TestClosedWithoutRecovery(t *testing.T) {
	url := newDatabase(t)
	first := open(t, url, Options{Lease: short})
	recover0(t, first)
	crash(first)
	second := open(t, url, Options{Lease: short, Wait: true})
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	third := open(t, url, Options{Lease: short, Wait: true})
	if past := recover0(t, third); past.Alive.IsZero() {
		t.Error("the crash is forgotten")
	}
}

// TestClocksOfMachines: on another machine no time counts as passed since the last commit: permits come
// back later, never earlier.
func TestClocksOfMachines(t *testing.T) {
	url := newDatabase(t)
	d := open(t, url, Options{Lease: short})
	recover0(t, d)
	h := lease.Hold{ID: 1 << 40, Upstream: "api", Limit: "day", Key: "k", Permits: 2, Back: time.Now().Add(time.Hour)}
	if err := d.Restate(t.Context(), []lease.Hold{h}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, url, Options{Lease: short})
	next.clock.Boot = func() columns.Boot { return columns.Boot{ID: "another machine", Since: time.Hour} }
	next.writer.Clock = next.clock
	time.Sleep(20 * time.Millisecond) // time that has passed, on either machine
	past := recover0(t, next)
	if len(past.Holds) != 1 || past.Holds[0].Back.Before(h.Back.Add(20*time.Millisecond)) || past.Step != 0 {
		t.Errorf("%+v, step %v; want the hold, later than %v", past.Holds, past.Step, h.Back)
	}
}

// TestRecoveryIsTriedAgain: a recovery whose connection breaks finds the mark of the last process at its next try, not its own:
// that process's clock was an hour behind, so an hour of a hold is left.
func TestRecoveryIsTriedAgain(t *testing.T) {
	url := newDatabase(t)
	d := open(t, url, Options{Lease: short})
	recover0(t, d)
	h := lease.Hold{ID: 1 << 40, Upstream: "api", Limit: "day", Key: "k", Permits: 2, Back: time.Now()}
	if err := d.Restate(t.Context(), []lease.Hold{h}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	admin := connect(t, url)
	behind := columns.Micros(time.Now().Add(-time.Hour))
	if _, err := admin.Exec(t.Context(), "UPDATE throttler.fence SET mark = $1", columns.Mark{Steady: behind, Wall: behind, Boot: columns.Boot{ID: "another machine", Since: time.Hour}}.String()); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END'",
		"CREATE CONSTRAINT TRIGGER hold AFTER UPDATE OF generation ON throttler.fence DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold()", // at COMMIT
		"SELECT pg_advisory_lock(1)",
	} {
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	next := open(t, url, Options{Lease: 30 * time.Second})
	recovered := make(chan *scheduler.Recovered, 1)
	go func() { recovered <- recover0(t, next) }()
	other := connect(t, url)
	for ended := false; !ended; time.Sleep(5 * time.Millisecond) {
		if err := other.QueryRow(t.Context(), "SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND wait_event_type = 'Lock'", writerName(next.tenure.term.epoch)).Scan(&ended); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.Exec(t.Context(), "SELECT pg_advisory_unlock(1)"); err != nil {
		t.Fatal(err)
	}
	past := <-recovered
	if len(past.Holds) != 1 || time.Until(past.Holds[0].Back).Round(time.Minute) != time.Hour {
		t.Errorf("%+v, want an hour of the hold left", past.Holds)
	}
}

// look reads the row of the lease.
func look(t *testing.T, d *DB) (s leaseRow) {
	t.Helper()
	if err := s.scan(d.db.QueryRow(t.Context(), selectLease)); err != nil {
		t.Fatal(err)
	}
	return s
}
