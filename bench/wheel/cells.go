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

// cell is the measurement of one process.
type cell struct {
	kind  string // ops, late, idle, lock
	peer  string
	n     int // ops: pending timeouts; late, lock: timeouts a second
	quick bool
}

func (c cell) String() string { return fmt.Sprintf("%s %s %d", c.kind, c.peer, c.n) }

// samples returns the number of samples of each operation: five if the cell runs only once.
func (c cell) samples() int {
	if c.once() {
		return 5
	}
	return 2
}

// once reports whether a cell runs in one round only, because it takes long to fill.
func (c cell) once() bool { return c.n == 10_000_000 }

// results are the samples of a cell's figures by name, at least one each.
type results map[string][]float64

func (r results) add(name string, sample float64) { r[name] = append(r[name], sample) }

// chunk is the number of operations timed together; "schedule" cancels its timeouts
// after each chunk.
const chunk = 10_000

// delays returns delays of a minute to an hour, so that several levels of a wheel are in use.
func delays() []time.Duration {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]time.Duration, 1<<16)
	for i := range all {
		all[i] = time.Minute + time.Duration(random.Int64N(int64(time.Hour)))
	}
	return all
}

// operations measures the calls of a peer while c.n timeouts wait, and the memory and
// garbage collection that those cost.
func operations[H any](t timers[H], c cell, out results) {
	o := &calls[H]{
		timers: t, cell: c, out: out, budget: 150 * time.Millisecond, delays: delays(),
		pending: make([]H, max(c.n, 1)), added: make([]H, chunk), random: 1,
	}
	if c.quick {
		o.budget /= 10
	}
	for i := range o.pending { // touches the memory, so that filling does not wait for pages
		o.pending[i] = *new(H)
	}
	t.cancel(t.after(time.Hour)) // allocations that a peer makes only once are not counted below
	before := heap()
	start := time.Now()
	fill(t, c, o.pending, o.delays)
	if c.n > 0 {
		out.add("fill", float64(time.Since(start))/float64(c.n))
		out.add("heap", (heap()-before)/float64(c.n))
	}
	o.measure()
	if c.n == 1_000_000 && c.peer != passive {
		for _, goroutines := range []int{1, 2, 8} {
			out.add(fmt.Sprint("goroutines ", goroutines), contend(t, goroutines, o.budget, o.delays))
		}
	}
	// The peer's memory, not that of the handles: a caller need not keep them.
	o.pending, o.added = nil, nil
	forcedGC()
	for range c.samples() {
		out.add("gc", forcedGC())
	}
	runtime.KeepAlive(t)
}

// forcedGC returns the milliseconds of a forced garbage collection.
func forcedGC() float64 {
	start := time.Now()
	runtime.GC()
	return float64(time.Since(start)) / 1e6
}

// calls measures the calls of one peer.
type calls[H any] struct {
	timers  timers[H]
	cell    cell
	out     results
	budget  time.Duration // of a sample
	delays  []time.Duration
	pending []H
	added   []H    // chunk handles
	random  uint64 // state of pick
}

func (o *calls[H]) measure() {
	t, d := o.timers, o.delays
	o.sample("schedule", func() {
		for i := range o.added {
			o.added[i] = t.after(d[i])
		}
	}, func() {
		for _, h := range o.added {
			t.cancel(h)
		}
	})
	o.sample("schedule+cancel", func() {
		for i := range chunk {
			t.cancel(t.after(d[i]))
		}
	}, nothing)
	o.sample("reschedule", func() {
		for i := range chunk {
			k := o.pick()
			o.pending[k] = t.reset(o.pending[k], d[i])
		}
	}, nothing)
	o.sample("churn", func() {
		for i := range chunk {
			k := o.pick()
			t.cancel(o.pending[k])
			o.pending[k] = t.after(d[i])
		}
	}, nothing)
}

// sample calls do, and after each time undo, until the calls of do have used the budget.
// It stops the world only before and after the loop: otherwise the goroutine would move to
// another processor each time, and time.AfterFunc would find an empty heap of timers there.
func (o *calls[H]) sample(name string, do, undo func()) {
	do()
	undo()
	for range o.cell.samples() {
		var wall, cpu time.Duration
		var mem, memAfter runtime.MemStats
		runtime.ReadMemStats(&mem)
		n := 0
		for wall < o.budget {
			cpuBefore, _ := usage()
			start := time.Now()
			do()
			wall += time.Since(start)
			cpuAfter, _ := usage()
			cpu += cpuAfter - cpuBefore
			undo()
			n += chunk
		}
		runtime.ReadMemStats(&memAfter)
		o.out.add(name, float64(wall)/float64(n))
		o.out.add(name+" cpu", float64(cpu)/float64(n))
		o.out.add(name+" allocs", float64(memAfter.Mallocs-mem.Mallocs)/float64(n))
	}
}

// pick returns the index of a random pending timeout, by xorshift, which costs next to
// nothing.
func (o *calls[H]) pick() int {
	o.random ^= o.random << 13
	o.random ^= o.random >> 7
	o.random ^= o.random << 17
	return int(o.random % uint64(len(o.pending)))
}

// fill schedules all pending timeouts, from all processors if the peer allows, like
// the callers of a server: time.AfterFunc has a heap per processor.
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

// contend returns the nanoseconds per schedule+cancel, of all goroutines together.
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

// lateness measures the lateness of c.n timeouts a second, all scheduled beforehand.
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
	// Evenly spread deadlines, scheduled in random order, like those of many clients.
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(l.late))
	l.start = time.Now()
	for _, id := range order {
		// The peer reads the clock later and adds the delay, so the timeout is never early.
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

// settle is the time for a process to start, and for its collector's threads to become
// idle.
const settle = 3 * time.Second

// idle waits until the parent closes standard input, so that the process has no
// timer except the peer's, and counts the context switches of its threads.
func idle(out results) {
	debug.FreeOSMemory()
	time.Sleep(settle)
	_, before := usage()
	io.Copy(io.Discard, os.Stdin)
	_, after := usage()
	out.add("switches", float64(after-before))
}

// longestCall measures a caller's longest wait for the peer while c.n timeouts a
// second fire. It is at least the longest time that the peer held a lock, and more if
// the system took the processor away.
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
	seconds = min(seconds, 3) // enough to show it
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

// usage returns the processor time of this process, and the number of its threads'
// context switches, voluntary or not.
func usage() (cpu time.Duration, switches int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), u.Nvcsw + u.Nivcsw
}
