package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/pgtest"
)

var (
	fleetRounds    = flag.Int("fleet.rounds", 4, "how many faults TestReplicas makes")
	fleetDefaults  = flag.Bool("fleet.defaults", false, "TestReplicas runs with the default time-outs")
	fleetTakeOvers = flag.Int("fleet.takeovers", 0, "how many owners TestTakeOver kills, and as many it stops")
)

// A fault is one of replicas, of PostgreSQL, or of the ways between them. It returns a detail, such as how long it lasted.
type fault struct {
	name string
	make func(f *fleet, server *pgtest.Server) string
}

var fleetFaults = []fault{
	{"kill -9 of the owner", func(f *fleet, _ *pgtest.Server) string { return f.kill(f.waitOwner()) }},
	{"kill -9 of another", func(f *fleet, _ *pgtest.Server) string { return f.kill(f.others(f.waitOwner())[0]) }},
	{"kill -9 of the owner and another", func(f *fleet, _ *pgtest.Server) string {
		owner := f.waitOwner()
		f.kill(owner)
		time.Sleep(rand.N(100 * time.Millisecond))
		return f.kill(f.others(owner)[rand.N(2)])
	}},
	{"kill -9 of all", func(f *fleet, _ *pgtest.Server) string {
		for _, r := range f.replicas {
			f.kill(r)
		}
		return ""
	}},
	{"SIGTERM of the owner", func(f *fleet, _ *pgtest.Server) string {
		p := f.waitOwner().process()
		p.cmd.Process.Signal(syscall.SIGTERM)
		<-p.done
		return ""
	}},
	{"a move", func(f *fleet, _ *pgtest.Server) string {
		out, err := f.command(f.others(f.waitOwner())[0], "fleet", "move")
		if err != nil {
			return out // the owner has changed meanwhile, or the server is away
		}
		return ""
	}},
	{"SIGSTOP", func(f *fleet, _ *pgtest.Server) string {
		p := f.some().process()
		p.cmd.Process.Signal(syscall.SIGSTOP)
		defer p.cmd.Process.Signal(syscall.SIGCONT)
		return f.last()
	}},
	{"a partition from PostgreSQL", func(f *fleet, _ *pgtest.Server) string { return f.part(f.some().database) }},
	{"a partition of replicas", func(f *fleet, _ *pgtest.Server) string { return f.part(f.some().link) }},
	{"kill -9 of PostgreSQL", func(f *fleet, server *pgtest.Server) string {
		server.Kill()
		defer func() {
			if err := server.Run(); err != nil {
				f.Fatal(err)
			}
		}()
		return f.last()
	}},
}

// some returns the owner or, less often, another replica.
func (f *fleet) some() *instance {
	owner := f.waitOwner()
	if rand.N(3) == 0 {
		return f.others(owner)[rand.N(2)]
	}
	return owner
}

func (f *fleet) kill(r *instance) string {
	p := r.process()
	p.cmd.Process.Kill()
	<-p.done
	return ""
}

// last waits for 0.1 to 8 s, a short time as likely as a long one.
func (f *fleet) last() string {
	d := time.Duration(float64(100*time.Millisecond) * math.Pow(80, rand.Float64()))
	time.Sleep(d)
	return fmt.Sprint("for ", d.Round(10*time.Millisecond))
}

// part breaks a way for a time: its connections break and none is made, or what goes in a direction, or in both, is held back.
func (f *fleet) part(p *pgtest.Proxy) string {
	switch kind := rand.N(4); kind {
	case 0:
		p.Shut(true)
		defer p.Shut(false)
		return "cut " + f.last()
	default:
		p.Hold(kind&1 != 0, kind&2 != 0)
		defer p.Hold(false, false)
		return []string{"", "held to the server ", "held from the server ", "held both ways "}[kind] + f.last()
	}
}

// startReplicas starts three replicas over a server, in front of a receiver, and the traffic of some callers.
func startReplicas(t *testing.T, at pace, callers int) (*traffic, *pgtest.Server) {
	t.Helper()
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return startOver(t, server, at, callers), server
}

func startOver(t *testing.T, server *pgtest.Server, at pace, callers int) *traffic {
	t.Helper()
	database, err := server.NewDatabase()
	if err != nil {
		t.Fatal(err)
	}
	j := startReceiver(t)
	f := startFleet(t, database, j.url, 3, at)
	f.standBy()
	tr := newTraffic(f, j, database, at)
	tr.start(callers)
	return tr
}

// TestReplicas: three replicas serve from one database, one at a time, through faults of them, of the server, and of the ways
// between them. A receiver in a process of its own judges: no limit is broken, no call is executed twice, no acknowledged one is
// lost, and none that was cancelled or told as not executed is executed.
func TestReplicas(t *testing.T) {
	t.Parallel()
	at := fast
	if *fleetDefaults {
		at = defaults
	}
	tr, server := startReplicas(t, at, 8)
	order := rand.Perm(len(fleetFaults))
	for n := range *fleetRounds {
		time.Sleep(200*time.Millisecond + rand.N(time.Second))
		fault := fleetFaults[order[n%len(order)]]
		begun := time.Now()
		detail := fault.make(tr.fleet, server)
		tr.waitOwner()
		t.Logf("round %d: %s %s; an owner after %v", n, fault.name, detail, time.Since(begun).Round(10*time.Millisecond))
		if *fleetDefaults && n%2 == 1 { // the others end in the time for which the limits hold back
			tr.sends(time.Now())
		}
		if t.Failed() {
			break
		}
	}
	tr.end()
	tr.verdict()
}

// TestFailOver: a standby takes the place of the server under load. A synchronous one has all that was acknowledged. One that
// lacks the last commits loses calls, which replicas tell; no limit is broken all the same.
func TestFailOver(t *testing.T) {
	if *fleetTakeOvers == 0 {
		t.Skip("make fleet runs it; TestStandby of pkg/postgres runs always")
	}
	for _, tt := range []struct {
		name  string
		lossy bool
	}{{"synchronous", false}, {"without the last commits", true}} {
		t.Run(tt.name, func(t *testing.T) {
			primary, err := pgtest.Start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { primary.Close() })
			way, err := pgtest.NewProxy(primary.Address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(way.Close)
			standby, err := primary.Standby(way.Address())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { standby.Close() })
			if !tt.lossy {
				if err := primary.Synchronous(); err != nil {
					t.Fatal(err)
				}
			}
			tr := startOver(t, primary, fast, 8)
			tr.lossy = tt.lossy
			time.Sleep(2 * time.Second)
			if tt.lossy {
				way.Hold(false, true)
				time.Sleep(500 * time.Millisecond)
			}
			primary.Kill()
			if err := standby.Promote(); err != nil {
				t.Fatal(err)
			}
			tr.server.Store(new(standby.Address()))
			time.Sleep(3 * time.Second)
			tr.end()
			tr.verdict()
			told := slices.ContainsFunc(tr.replicas, func(r *instance) bool { return strings.Contains(r.process().log.String(), "has lost commits") })
			if told != tt.lossy {
				t.Errorf("a loss of commits is told: %v, want %v", told, tt.lossy)
			}
		})
	}
}

// TestTakeOver measures how long no call is sent after kill -9 of the owner, beyond the time for which the limits hold back, and
// after SIGTERM.
func TestTakeOver(t *testing.T) {
	if *fleetTakeOvers == 0 {
		t.Skip("it measures; make fleet runs it")
	}
	at := defaults
	at.timeout, at.late, at.calls, at.ofKey = fast.timeout, fast.late, 1000, 1000 // no call waits for a limit
	tr, _ := startReplicas(t, at, 16)
	hold := at.timeout + at.late + fleetWindow
	var killed, stopped []time.Duration
	for n := range 2 * *fleetTakeOvers {
		tr.readied()
		time.Sleep(rand.N(300 * time.Millisecond))
		owner, begun := tr.waitOwner(), time.Now()
		p := owner.process()
		if n%2 == 0 {
			tr.kill(owner)
		} else {
			p.cmd.Process.Signal(syscall.SIGTERM)
			<-p.done
		}
		for tr.waitOwner().process() == p {
			time.Sleep(time.Millisecond)
		}
		restored := tr.restored(begun)
		tr.sends(restored)
		gap := tr.judge.gap(restored)
		if n%2 == 0 {
			killed = append(killed, gap.To.Sub(begun)-hold)
		} else {
			stopped = append(stopped, gap.To.Sub(gap.From))
			if gap.To.Sub(gap.From) > 300*time.Millisecond {
				tr.Logf("no attempt from %s to %s:\n%s%s", gap.From.Format(logTime), gap.To.Format(logTime), p.logSince(begun), tr.logSince(begun))
			}
		}
	}
	tr.end()
	tr.verdict()
	t.Logf("kill -9 to the first attempt elsewhere, beyond the %v of the limits: %s", hold, spread(killed))
	t.Logf("SIGTERM, from the end of the last attempt to the first one elsewhere: %s", spread(stopped))
}

// sends waits until an attempt arrives at the receiver after an instant.
func (tr *traffic) sends(after time.Time) {
	tr.Helper()
	tr.until("an attempt arrives", func() bool { return !tr.judge.gap(after).To.IsZero() })
}

// restored returns when the next owner had recovered, and sent nothing yet, after a fault of the last one.
func (f *fleet) restored(since time.Time) (at time.Time) {
	f.Helper()
	f.until("the next owner has recovered", func() bool {
		for _, r := range f.replicas {
			for line := range strings.Lines(r.process().logSince(since)) {
				if strings.Contains(line, `msg="restored from the store"`) {
					at = instantOf(line)
				}
			}
		}
		return !at.IsZero()
	})
	return at
}

// readied waits until all replicas are ready.
func (f *fleet) readied() {
	f.Helper()
	for _, r := range f.replicas {
		f.until(r.name+" is ready", func() bool { return f.status(r.process(), adminListener, "/readyz") == 200 })
	}
}

// logTime is the form of an instant at the begin of a line of the log.
const logTime = "2006-01-02T15:04:05.000Z07:00"

// logSince returns the lines of a log since an instant.
func (p *process) logSince(since time.Time) string {
	var lines strings.Builder
	for line := range strings.Lines(p.log.String()) {
		if instantOf(line).After(since) {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// instantOf returns that of a line of the log, in milliseconds; zero if the line has none.
func instantOf(line string) time.Time {
	stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
	at, _ := time.Parse(logTime, stamp)
	return at
}

// logSince returns those of all replicas.
func (f *fleet) logSince(since time.Time) string {
	var all strings.Builder
	for _, r := range f.replicas {
		fmt.Fprintf(&all, "%s:\n%s", r.name, r.process().logSince(since))
	}
	return all.String()
}

// spread returns the median, the 99th percentile and the greatest of some times.
func spread(all []time.Duration) string {
	slices.Sort(all)
	at := func(p float64) time.Duration {
		return all[min(len(all)-1, int(p*float64(len(all))))].Round(time.Millisecond)
	}
	return fmt.Sprintf("p50 %v, p99 %v, most %v of %d", at(0.5), at(0.99), at(1), len(all))
}
