package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"
)

// cell is what one process measures.
type cell struct {
	kind  string // ops, late, idle, lock
	peer  string
	n     int // ops: pending timeouts; late, lock: timeouts a second
	quick bool
}

func (c cell) String() string { return fmt.Sprintf("%s %s %d", c.kind, c.peer, c.n) }

// samples is how many a cell takes of each operation: five if it runs only once.
func (c cell) samples() int {
	if c.once() {
		return 5
	}
	return 2
}

// once reports whether a cell runs in one round only, as it takes long to fill.
func (c cell) once() bool { return c.n == 10_000_000 }

// results are the figures of a cell by name: one sample each, or more.
type results map[string][]float64

func (r results) add(name string, sample float64) { r[name] = append(r[name], sample) }

// chunk is how many operations are timed together, and how many timeouts "schedule"
// adds before they are cancelled again.
const chunk = 10_000

// delays are up to an hour, so that several levels of a wheel are in use.
func delays() []time.Duration {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]time.Duration, 1<<16)
	for i := range all {
		all[i] = time.Minute + time.Duration(random.Int64N(int64(time.Hour)))
	}
	return all
}

// operations measures what the calls of a peer cost while c.n timeouts wait, and what
// those cost memory and garbage collector.
func operations[H any](t timers[H], c cell, out results) {
	budget := 150 * time.Millisecond
	if c.quick {
		budget /= 10
	}
	d := delays()
	random := uint64(1)
	pick := func(n int) int { // xorshift: a generator that costs next to nothing
		random ^= random << 13
		random ^= random >> 7
		random ^= random << 17
		return int(random % uint64(n))
	}
	pending := make([]H, max(c.n, 1))
	for i := range pending {
		pending[i] = *new(H)
	}
	added := make([]H, chunk)

	t.cancel(t.after(time.Hour)) // what a peer allocates once is not counted below
	before := heap()
	start := time.Now()
	fill(t, c, pending, d)
	if c.n > 0 {
		out.add("fill", float64(time.Since(start))/float64(c.n))
		out.add("heap", (heap()-before)/float64(c.n))
	}

	// timed calls do, and after each time undo, until what do took adds up to the budget.
	// It stops the world only before and after: else the goroutine would come to another
	// processor each time, where time.AfterFunc finds an empty heap of timers.
	timed := func(name string, do, undo func()) {
		do()
		undo()
		for range c.samples() {
			var wall, cpu time.Duration
			var mem, memAfter runtime.MemStats
			runtime.ReadMemStats(&mem)
			calls := 0
			for wall < budget {
				cpuBefore, _ := usage()
				start := time.Now()
				do()
				wall += time.Since(start)
				cpuAfter, _ := usage()
				cpu += cpuAfter - cpuBefore
				undo()
				calls += chunk
			}
			runtime.ReadMemStats(&memAfter)
			out.add(name, float64(wall)/float64(calls))
			out.add(name+" cpu", float64(cpu)/float64(calls))
			out.add(name+" allocs", float64(memAfter.Mallocs-mem.Mallocs)/float64(calls))
		}
	}
	timed("schedule", func() {
		for i := range added {
			added[i] = t.after(d[i])
		}
	}, func() {
		for _, h := range added {
			t.cancel(h)
		}
	})
	timed("schedule+cancel", func() {
		for i := range chunk {
			t.cancel(t.after(d[i]))
		}
	}, nothing)
	timed("reschedule", func() {
		for i := range chunk {
			k := pick(len(pending))
			pending[k] = t.reset(pending[k], d[i])
		}
	}, nothing)
	timed("churn", func() {
		for i := range chunk {
			k := pick(len(pending))
			t.cancel(pending[k])
			pending[k] = t.after(d[i])
		}
	}, nothing)
	if c.n == 1_000_000 && c.peer != passive {
		for _, goroutines := range []int{1, 2, 8} {
			out.add(fmt.Sprint("goroutines ", goroutines), contend(t, goroutines, budget, d))
		}
	}
	// The peer's memory, not that of the handles that a caller may or may not keep.
	pending, added = nil, nil
	collect := func() float64 {
		start := time.Now()
		runtime.GC()
		return float64(time.Since(start)) / 1e6
	}
	collect()
	for range c.samples() {
		out.add("gc", collect())
	}
	runtime.KeepAlive(t)
}

// fill schedules all pending timeouts, from all processors where the peer allows, as
// their owners would in a server: time.AfterFunc has a heap for each.
func fill[H any](t timers[H], c cell, pending []H, d []time.Duration) {
	fillers := runtime.GOMAXPROCS(0)
	if c.peer == passive {
		fillers = 1
	}
	var all sync.WaitGroup
	for f := range fillers {
		all.Go(func() {
			for i := f; i < len(pending); i += fillers {
				pending[i] = t.after(d[i%len(d)])
			}
		})
	}
	all.Wait()
}

// contend returns the nanoseconds per schedule+cancel of all goroutines together.
func contend[H any](t timers[H], goroutines int, budget time.Duration, d []time.Duration) float64 {
	var all sync.WaitGroup
	counts := make([]int, goroutines)
	start := time.Now()
	for g := range goroutines {
		all.Go(func() {
			n := 0
			for time.Since(start) < budget {
				for i := range 1000 {
					t.cancel(t.after(d[(g*1000+i)%len(d)]))
				}
				n += 1000
			}
			counts[g] = n
		})
	}
	all.Wait()
	wall := time.Since(start)
	n := 0
	for _, count := range counts {
		n += count
	}
	return float64(wall) / float64(n)
}

// lateness is that of c.n timeouts a second, all scheduled beforehand.
type lateness struct {
	start time.Time
	lead  time.Duration // before the first is due
	every time.Duration
	late  []time.Duration // by timeout
	grace time.Duration   // after the last is due
}

const notFired = time.Duration(-1 << 62)

func newLateness(c cell) *lateness {
	l := &lateness{lead: time.Second, every: time.Second / time.Duration(c.n), grace: 100 * time.Millisecond}
	window := 2 * time.Second
	if c.n < 10_000 {
		l.lead = 300 * time.Millisecond
	}
	if c.quick {
		window = 500 * time.Millisecond
	}
	if c.peer == "go-zero" {
		l.lead, l.grace = 4*time.Second, time.Second
	}
	l.late = make([]time.Duration, window/l.every)
	for i := range l.late {
		l.late[i] = notFired
	}
	return l
}

func (l *lateness) due(id int) time.Duration { return l.lead + time.Duration(id)*l.every }

func (l *lateness) fired(id int) { l.late[id] = time.Since(l.start) - l.due(id) }

func (l *lateness) run(fire func(time.Duration, int), out results) {
	// The deadlines spread evenly and come in at random, as those of many clients would.
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(l.late))
	l.start = time.Now()
	for _, id := range order {
		// Due now + d by the peer's own, later, reading of the clock: never too early.
		fire(l.due(id)-time.Since(l.start), id)
	}
	order = nil
	runtime.GC()
	if spent := time.Since(l.start); spent > l.lead {
		out.add("overrun", spent.Seconds())
	}
	before, _ := usage()
	time.Sleep(l.due(len(l.late)) + l.grace - time.Since(l.start))
	after, _ := usage()

	var early, missing, over2ms int
	late := slices.DeleteFunc(slices.Clone(l.late), func(d time.Duration) bool {
		if d == notFired {
			missing++
			return true
		}
		if d < 0 {
			early++
		}
		if d > 2*time.Millisecond {
			over2ms++
		}
		return false
	})
	slices.Sort(late)
	all := float64(len(l.late))
	at := func(q float64) float64 { return float64(late[int(q*float64(len(late)-1))]) / 1e6 }
	out.add("p50", at(.5))
	out.add("p99", at(.99))
	out.add("p99.9", at(.999))
	out.add("max", at(1))
	out.add("early", 100*float64(early)/all)
	out.add("missing", 100*float64(missing)/all)
	out.add("over 2ms", 100*float64(over2ms)/all)
	out.add("cpu", (after - before).Seconds())
}

// settle is how long a process has to start and its collector's threads to come to rest.
const settle = 3 * time.Second

// idle waits until the parent closes standard input, so that no timer but the peer's
// waits in this process, and counts how often a thread of it was switched.
func idle(out results) {
	debug.FreeOSMemory()
	time.Sleep(settle)
	_, before := usage()
	io.Copy(io.Discard, os.Stdin)
	_, after := usage()
	out.add("switches", float64(after-before))
}

// longestCall is the longest that a caller had to wait for the peer while c.n timeouts
// a second fired. It is not less than the longest time that the peer held a lock, and
// more where the machine took the processor away.
func longestCall[H any](t timers[H], c cell, out results) {
	seconds := 5
	if c.quick {
		seconds = 1
	}
	n := seconds * c.n
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	start := time.Now()
	for _, i := range order {
		t.fire(600*time.Millisecond+time.Duration(i)*time.Second/time.Duration(c.n)-time.Since(start), i)
	}
	order = nil
	runtime.GC()
	seconds = min(seconds, 3) // are enough to see
	var longest time.Duration
	for end := time.Duration(seconds)*time.Second + 600*time.Millisecond; time.Since(start) < end; {
		from := time.Now()
		h := t.after(time.Hour)
		took := time.Since(from)
		t.cancel(h)
		longest = max(longest, took)
		for time.Since(from) < 20*time.Microsecond {
		}
	}
	out.add("longest", float64(longest)/1e6)
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// usage returns the processor time of this process, and how often its threads gave up
// or lost the processor.
func usage() (cpu time.Duration, switches int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), u.Nvcsw + u.Nivcsw
}
