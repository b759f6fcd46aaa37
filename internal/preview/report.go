package preview

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Millis is a duration in milliseconds.
type Millis float64

func millis(d time.Duration) Millis { return Millis(d) / 1e6 }

// Duration returns the duration.
func (m Millis) Duration() time.Duration { return time.Duration(m * 1e6) }

// A Report is the result of a preview. Instants are counted from the first arrival.
type Report struct {
	Config string    `json:"config"`
	Begin  time.Time `json:"begin"` // of the load

	Calls   int                      `json:"calls"`
	Sent    int                      `json:"sent"`
	Refused map[scheduler.Reason]int `json:"refused"` // by Throttler
	// Over are sends that the upstream would limit with Throttler: 0.
	Over int `json:"over"`
	// LimitedWithout are calls that the upstream would limit without Throttler.
	LimitedWithout int `json:"limited_without"`

	Length   Millis `json:"length_ms"`   // to the last arrival
	Makespan Millis `json:"makespan_ms"` // to the last answer
	Wait     Waits  `json:"wait_ms"`
	Backlog  struct {
		Peak int    `json:"peak"` // calls
		At   Millis `json:"at_ms"`
	} `json:"backlog"`

	Flows []Flow `json:"flows"`
	// FlowCount is the number of all flows.
	FlowCount int     `json:"flow_count"`
	Limits    []Limit `json:"limits"`
	Series    Series  `json:"series"`
}

// Waits are percentiles (by nearest rank) of the waits of calls that were sent.
type Waits struct {
	P50  Millis `json:"p50"`
	P95  Millis `json:"p95"`
	P99  Millis `json:"p99"`
	Max  Millis `json:"max"`
	Mean Millis `json:"mean"`
}

// A Flow has the figures of the calls of one flow.
type Flow struct {
	Upstream string `json:"upstream"`
	Flow     string `json:"flow"`
	Calls    int    `json:"calls"`
	Sent     int    `json:"sent"`
	Wait     Waits  `json:"wait_ms"`
}

// A Limit has the figures of a limit.
type Limit struct {
	Upstream string `json:"upstream"`
	Limit    string `json:"limit"`
	Permits  int    `json:"permits"`          // per key and window
	Window   string `json:"window,omitempty"` // none for concurrency
	Keys     int    `json:"keys"`             // of the load; counted up to 100000
	Most     int    `json:"most"`             // permits of one key used in any window
	Queued   int    `json:"queued"`           // calls that waited for it, the greatest number in Series
	// Binds are the times in which more calls waited for it than for any other limit
	// of its upstream. Share is their part of the makespan.
	Binds []Span  `json:"binds"`
	Share float64 `json:"share"`
	// LimitedWithout are calls that the upstream would limit by it without Throttler.
	LimitedWithout int `json:"limited_without"`
}

// A Span is a time of a load.
type Span struct {
	From Millis `json:"from_ms"`
	To   Millis `json:"to_ms"`
}

func (k *collector) report(o Options) *Report {
	r := &Report{
		Config: o.Name, Begin: k.begin, Calls: k.arrived, Sent: k.sent, Refused: k.refused, Over: k.over, LimitedWithout: k.without,
		Length: millis(k.lastAt - k.firstAt), Makespan: millis(k.end - k.firstAt), Series: k.series, Limits: []Limit{}, Flows: []Flow{},
	}
	r.Backlog.Peak, r.Backlog.At = k.peak, millis(k.peakAt-k.firstAt)
	if k.peak == 0 {
		r.Backlog.At = 0
	}
	r.Series.Step = millis(k.series.step)
	var all []time.Duration
	names := slices.SortedFunc(maps.Keys(k.flows), func(a, b flowName) int {
		return cmp.Or(cmp.Compare(a.upstream, b.upstream), cmp.Compare(a.flow, b.flow))
	})
	for _, name := range names {
		f := k.flows[name]
		r.Flows = append(r.Flows, Flow{name.upstream, name.flow, f.calls, len(f.waits), waitsOf(f.waits)})
		all = append(all, f.waits...)
	}
	r.Wait, r.FlowCount = waitsOf(all), len(r.Flows)
	for i, l := range k.limits {
		if l.index == 0 && slices.Max(l.Queued) == 0 {
			continue // it is not of the configuration, and held no call
		}
		r.Limits = append(r.Limits, k.limit(i, l, r.Makespan))
	}
	return r
}

// upstreams returns the names of upstreams with calls or limits.
func (r *Report) upstreams() []string {
	var names []string
	for _, f := range r.Flows {
		names = append(names, f.Upstream)
	}
	for _, l := range r.Limits {
		names = append(names, l.Upstream)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Binding returns the limit that binds for the longest time; nil if none does.
func (r *Report) Binding() *Limit {
	var most *Limit
	for i := range r.Limits {
		if l := &r.Limits[i]; l.Share > 0 && (most == nil || l.Share > most.Share) {
			most = l
		}
	}
	return most
}

// Is reports whether a limit is the same as another, of another report.
func (l *Limit) Is(other *Limit) bool {
	return other != nil && l.Upstream == other.Upstream && l.Limit == other.Limit
}

// AllRefused returns the number of calls that Throttler refuses.
func (r *Report) AllRefused() (n int) {
	for _, of := range r.Refused {
		n += of
	}
	return n
}

func (k *collector) limit(i int, l *limitTally, makespan Millis) Limit {
	figures := Limit{
		Upstream: l.Upstream, Limit: l.LimitSeries.Limit, Window: l.Window.String(), Permits: l.Calls,
		Keys: len(l.keys), Most: l.most, Queued: slices.Max(l.Queued), Binds: []Span{}, LimitedWithout: l.without,
	}
	at := func(step int) Millis {
		return min(makespan, max(0, millis(time.Duration(step)*k.series.step-k.firstAt)))
	}
	for step := 0; step < len(l.Queued); step++ {
		from := step
		for step < len(l.Queued) && k.binding(step, l.Upstream) == i {
			step++
		}
		if step > from {
			figures.Binds = append(figures.Binds, Span{at(from), at(step)})
			figures.Share += float64((at(step) - at(from)) / max(makespan, 1e-6))
		}
	}
	return figures
}

// binding returns the limit of an upstream for which most calls waited in a step, -1 if
// none waited.
func (k *collector) binding(step int, upstream string) int {
	best := -1
	for i, l := range k.limits {
		if l.Upstream == upstream && l.Queued[step] > 0 && (best < 0 || l.Queued[step] > k.limits[best].Queued[step]) {
			best = i
		}
	}
	return best
}

// waitsOf sorts waits, and returns their percentiles.
func waitsOf(waits []time.Duration) Waits {
	if len(waits) == 0 {
		return Waits{}
	}
	slices.Sort(waits)
	rank := func(hundredths int) Millis { return millis(waits[(len(waits)*hundredths+99)/100-1]) }
	sum := 0.0
	for _, w := range waits {
		sum += float64(w)
	}
	return Waits{rank(50), rank(95), rank(99), rank(100), Millis(sum / float64(len(waits)) / 1e6)}
}
