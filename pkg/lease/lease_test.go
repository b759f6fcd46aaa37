package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

var (
	begin  = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	limits = []Limit{{Name: "short", Calls: 100}, {Name: "day", Calls: 1000, Long: true}}
)

func newBook() *Book {
	id := int64(0)
	b := NewBook("api", func() int64 { id++; return id })
	b.SetLimits(limits)
	return b
}

func needs(key string, cost int) []quota.Need {
	return []quota.Need{{Limit: 0, Key: key, Cost: cost}, {Limit: 1, Key: key, Cost: cost}}
}

func backAt(at time.Time) func(quota.Need) (int, time.Time) {
	return func(n quota.Need) (int, time.Time) { return n.Cost, at }
}

func TestDurableCallStoresItsShortPermits(t *testing.T) {
	b := newBook()
	own, take, used := b.Take(begin, needs("k", 2), true)
	if len(own) != 1 || own[0].Limit != "short" || own[0].Key != "k" || own[0].Permits != 2 || own[0].ID != 0 || !own[0].Back.IsZero() {
		t.Errorf("stored with the call: %+v, want its two permits of short", own)
	}
	if len(take) != 1 || take[0].Limit != "day" || take[0].Permits != 2 || take[0].ID == 0 {
		t.Errorf("stored before the call: %+v, want a lease of two permits of day", take)
	}
	at := begin.Add(time.Minute)
	own, over := b.Return(begin, needs("k", 2), used, true, backAt(at))
	if len(own) != 1 || !own[0].Back.Equal(at) || len(over) != 0 {
		t.Errorf("after the call %+v with it and %+v over, want its permits back at %v", own, over, at)
	}
	if own, _ = b.Return(begin, needs("k", 2)[:1], nil, true, backAt(time.Time{})); len(own) != 0 {
		t.Errorf("permits that are back are stored: %+v", own)
	}
}

func TestWaitingCallStoresAllShortPermitsOnce(t *testing.T) {
	b := newBook()
	_, take, used := b.Take(begin, needs("a", 1)[:1], false)
	if len(take) != 1 || !take[0].Every || take[0].Limit != "short" {
		t.Fatalf("first call: %+v, want all permits of short", take)
	}
	if _, again, _ := b.Take(begin, needs("b", 1)[:1], false); len(again) != 1 || again[0].ID != take[0].ID {
		t.Errorf("before it is stored another call stores %+v, want the same hold", again)
	}
	b.Stored(used)
	if _, again, _ := b.Take(begin, needs("b", 1)[:1], false); len(again) != 0 {
		t.Errorf("after it is stored another call stores %+v", again)
	}
}

func TestLeaseIsStoredBeforeItIsUsed(t *testing.T) {
	b := newBook()
	for range 3 { // leases of 1 and 2
		_, _, used := b.Take(begin, needs("k", 1)[1:], false)
		b.Stored(used)
	}
	_, first, used := b.Take(begin, needs("k", 1)[1:], false)
	_, second, _ := b.Take(begin, needs("k", 1)[1:], false)
	if len(second) != 1 || second[0].ID != first[0].ID {
		t.Errorf("the second call goes out on a lease that the store may not know: %+v", second)
	}
	b.Stored(used)
	if _, third, _ := b.Take(begin, needs("k", 1)[1:], false); len(third) != 0 {
		t.Errorf("the third call stores the lease again: %+v", third)
	}
}

func TestLargeCostHasALeaseOfItsOwn(t *testing.T) {
	b := newBook()
	if _, take, _ := b.Take(begin, needs("k", 25)[1:], false); len(take) != 1 || take[0].Permits != 25 {
		t.Errorf("%+v, want 25 permits", take)
	}
	if _, take, _ := b.Take(begin, needs("k", 1)[1:], false); len(take) != 1 || take[0].Permits != 10 {
		t.Errorf("%+v, want a new lease: the first has no permit left", take)
	}
}

// TestUnusedPermitsAreLeft: an answer that tells a cost below the most leaves the rest of the
// lease to later calls, and of a durable call's own permits keeps the used ones only.
func TestUnusedPermitsAreLeft(t *testing.T) {
	b := newBook()
	at := begin.Add(time.Minute)
	uses := func(n int) func(quota.Need) (int, time.Time) {
		return func(quota.Need) (int, time.Time) { return n, at }
	}
	own, _, used := b.Take(begin, needs("k", 10), true)
	b.Stored(used)
	if own[0].Permits != 10 {
		t.Errorf("in flight %+v are out, want all 10 permits", own)
	}
	own, over := b.Return(begin, needs("k", 10), used, true, uses(4))
	if len(own) != 1 || own[0].Permits != 4 || !own[0].Back.Equal(at) || len(over) != 0 {
		t.Errorf("after the call %+v with it and %+v over, want 4 permits", own, over)
	}
	for used, want := range []int{0, 0, 0, 0, 0, 0, 1} { // six are left; the seventh needs another lease
		if _, take, _ := b.Take(begin, needs("k", 1)[1:], false); len(take) != want {
			t.Errorf("after %d more %+v is stored, want %d leases", used, take, want)
		}
	}
	_, _, leases := b.Take(begin, needs("z", 10), true)
	if own, _ = b.Return(begin, needs("z", 10), leases, true, uses(0)); len(own) != 0 || leases[0].left != 10 || leases[0].Permits != 10 {
		t.Errorf("a call that cost nothing keeps %+v, and %+v", own, leases[0])
	}
}

// TestCrashCostsWhatWasUsed: at any moment no more permits are leased than twice those that
// were used, and one, and no more idle than a hundredth of the limit.
func TestCrashCostsWhatWasUsed(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBook()
		used, leased, largest := 0, 0, 1
		for range 200 {
			cost := 1 + r.IntN(3)*r.IntN(2)
			used, largest = used+cost, max(largest, cost)
			_, take, leases := b.Take(begin, needs("k", cost)[1:], false)
			b.Stored(leases)
			for _, h := range take {
				leased += h.Permits
			}
			if leased > 2*used+largest || leases[0].left > 10 {
				t.Fatalf("seed %d: %d permits are leased, %d were used", seed, leased, used)
			}
		}
	}
}

func TestIdleLeasesAreSettled(t *testing.T) {
	b := newBook()
	settled := 0
	for n := range 3 * firstSweep {
		now := begin.Add(time.Duration(n) * time.Second)
		ns := needs(fmt.Sprint(n), 1)[1:]
		_, _, used := b.Take(now, ns, false)
		_, over := b.Return(now, ns, used, false, backAt(now.Add(500*time.Millisecond)))
		settled += len(over)
	}
	if len(b.latest) > firstSweep+1 || settled < firstSweep {
		t.Errorf("%d leases are remembered, %d are settled", len(b.latest), settled)
	}
}

// TestIdleLeasesAreSearchedForSeldom: when there are more than firstSweep, and again when
// there are twice as many as the search has left. Those in flight, and those whose permits
// are out, stay.
func TestIdleLeasesAreSearchedForSeldom(t *testing.T) {
	b := newBook()
	keys := 0
	open := func(back time.Time) []Hold { // makes a lease of another key, which no call uses any more
		keys++
		ns := needs(fmt.Sprint(keys), 1)[1:]
		_, _, used := b.Take(begin, ns, false)
		_, over := b.Return(begin, ns, used, false, backAt(back))
		return over
	}
	flying := needs("in flight", 1)[1:]
	b.Take(begin, flying, false)
	later := begin.Add(time.Minute)
	for range firstSweep - 4 {
		if over := open(later); len(over) != 0 {
			t.Fatalf("settled while few are known: %+v", over)
		}
	}
	for n := range 3 {
		if over := open(begin); len(over) != 0 {
			t.Fatalf("settled when %d are known: %+v", firstSweep-2+n, over)
		}
	}
	if over := open(later); len(over) != 3 {
		t.Errorf("%d are settled when more than %d are known, want the three that are idle", len(over), firstSweep)
	}
	for n := len(b.latest); n < 2*(firstSweep-2); n++ {
		if over := open(begin); len(over) != 0 {
			t.Fatalf("%d are settled when %d are known, want none so soon", len(over), n+1)
		}
	}
	if over := open(begin); len(over) != firstSweep-1 || len(b.latest) != firstSweep-2 {
		t.Errorf("%d are settled and %d left, want %d and %d", len(over), len(b.latest), firstSweep-1, firstSweep-2)
	}
}

// TestUsedUpLeaseIsSettled: with the last of its calls, when its last permit comes back; at
// once if none of them counted.
func TestUsedUpLeaseIsSettled(t *testing.T) {
	for _, tt := range []struct {
		back []time.Time // of the two calls of the lease
		want time.Time
	}{
		{[]time.Time{begin.Add(2 * time.Minute), begin.Add(time.Minute)}, begin.Add(2 * time.Minute)},
		{[]time.Time{{}, begin.Add(time.Minute)}, begin.Add(time.Minute)},
		{[]time.Time{{}, {}}, begin},
	} {
		for _, early := range []bool{true, false} { // the calls end before the next lease is taken, or after it
			b, one := newBook(), needs("k", 1)[1:]
			b.Take(begin, one, false) // its lease has one permit
			_, take, first := b.Take(begin, one, false)
			_, _, second := b.Take(begin, one, false)
			var over []Hold
			end := func() {
				for i, used := range [][]*Lease{first, second} {
					_, more := b.Return(begin, one, used, false, backAt(tt.back[i]))
					over = append(over, more...)
				}
			}
			if early {
				end()
			}
			_, _, third := b.Take(begin, one, false)
			if !early {
				end()
			}
			_, more := b.Return(begin, one, third, false, backAt(begin))
			over = append(over, more...)
			if len(over) != 1 || over[0].ID != take[0].ID || over[0].Permits != 2 || !over[0].Back.Equal(tt.want) {
				t.Errorf("back at %v, early: %v: settled %+v, want the lease of two permits back at %v", tt.back, early, over, tt.want)
			}
		}
	}
}

func TestNilBookKeepsNothing(t *testing.T) {
	var b *Book
	b.SetLimits(limits)
	own, take, used := b.Take(begin, needs("k", 1), true)
	more, over := b.Return(begin, needs("k", 1), used, true, backAt(begin))
	if len(own)+len(take)+len(used)+len(more)+len(over) != 0 {
		t.Errorf("a book of no store keeps %v %v %v %v %v", own, take, used, more, over)
	}
}

func TestOut(t *testing.T) {
	holds := []Hold{{ID: 1, Back: begin.Add(time.Second)}, {ID: 2, Back: begin}, {ID: 3}}
	if out := Out(holds, begin); len(out) != 1 || out[0].ID != 1 {
		t.Errorf("out: %+v", out)
	}
}

// TestCrashGivesNoPermitBackEarly plays calls and crashes: at each instant the permits
// that the store knows to be out are at least those that calls have out.
func TestCrashGivesNoPermitBackEarly(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		b, now := newBook(), begin
		stored := map[int64]Hold{} // leases that the store knows
		type flying struct {
			needs []quota.Need
			used  []*Lease
			own   []Hold
			back  time.Time // once it has ended
			dur   bool
		}
		var calls []*flying
		for range 300 {
			now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
			if r.IntN(2) == 0 {
				c := &flying{needs: needs(fmt.Sprint(r.IntN(3)), 1+r.IntN(4)), dur: r.IntN(2) == 0}
				var take []Hold
				c.own, take, c.used = b.Take(now, c.needs, c.dur)
				for _, h := range take {
					if _, known := stored[h.ID]; !known {
						stored[h.ID] = h
					}
				}
				b.Stored(c.used)
				calls = append(calls, c)
			} else if i := slices.IndexFunc(calls, func(c *flying) bool { return c.back.IsZero() }); i >= 0 {
				c := calls[i]
				c.back = now.Add(time.Duration(1+r.IntN(100)) * time.Second)
				var over []Hold
				c.own, over = b.Return(now, c.needs, c.used, c.dur, backAt(c.back))
				for _, h := range over {
					stored[h.ID] = h
				}
			}
			out := map[[2]string]int{}
			for _, c := range calls {
				for _, n := range c.needs {
					if c.back.IsZero() || c.back.After(now) {
						out[[2]string{limits[n.Limit].Name, n.Key}] += n.Cost
					}
				}
				for _, h := range c.own {
					if h.Back.IsZero() || h.Back.After(now) {
						out[[2]string{h.Limit, h.Key}] -= h.Permits
					}
				}
			}
			for _, h := range stored {
				if h.Back.IsZero() || h.Back.After(now) {
					for id := range out {
						if id[0] == h.Limit && (h.Every || id[1] == h.Key) {
							if out[id] -= h.Permits; h.Every {
								out[id] = min(out[id], 0)
							}
						}
					}
				}
			}
			for id, n := range out {
				if n > 0 {
					t.Fatalf("seed %d: %d permits of %v are out, and the store knows nothing of them", seed, n, id)
				}
			}
		}
	}
}
