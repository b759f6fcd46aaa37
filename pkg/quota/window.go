package quota

import "time"

// A Window is the kind of a limit: the rule by which a permit comes back. The
// kinds differ in the methods of Window alone:
//
//	             a permit comes back                    clock
//	Sliding(d)   at response + d                        monotonic
//	Aligned(c)   at the end of the last window in       wall
//	             which its attempt may have arrived
//	InFlight()   at the response                        monotonic
type Window interface {
	// String returns the window as configurations give it: "1s" or "day"; empty for InFlight.
	String() string
	// Equal reports whether permits that are out under this window may go on under the other one.
	Equal(other Window) bool
	// Length returns the nominal length, a month's being 30 days; zero for InFlight.
	Length() time.Duration
	// Slides reports whether each instant ends a window of Length. Only such a
	// limit can be spaced, and has a cost of waiting for responses (see [Audit.Cost]).
	Slides() bool
	// Round returns how long after a permit is taken it can be had again, if an attempt
	// takes trip; zero where that depends on the calendar.
	Round(trip time.Duration) time.Duration

	// check adds the faults that make the window impossible.
	check(*faults)
	// onWall reports whether the window follows the wall clock, not the monotonic one.
	// The methods below return instants of this clock, and later takes one.
	onWall() bool
	// back returns when the permit of an attempt comes back that arrived by the instant.
	back(arrived instant) int64
	// later estimates when a permit that is free at an instant is free again after a
	// number of rounds: in each, an attempt takes it at once and ends after trip.
	later(at, rounds, trip int64) int64
	// tolerates reports whether a step of the wall clock by so much, forward or back, is no
	// reason to hold permits for longer.
	tolerates(step int64) bool
}

// Sliding returns the window of "at most N calls in any stretch of this length".
func Sliding(length time.Duration) Window { return sliding(length) }

// Aligned returns the window of "at most N calls in each unit of the calendar".
func Aligned(c Calendar) Window { return aligned{c} }

// InFlight returns the window of "at most N attempts in flight": a limit of concurrency.
func InFlight() Window { return inFlight{} }

type sliding time.Duration

// A sliding window of coarse or longer is counted in grains: permits come back
// at most 1/1440 of the window later, and a key needs no more room than that.
const (
	coarse = sliding(time.Hour)
	grains = 1440
)

func (w sliding) String() string                         { return w.Length().String() }
func (w sliding) Equal(other Window) bool                { return other == Window(w) }
func (w sliding) Length() time.Duration                  { return time.Duration(w) }
func (w sliding) Slides() bool                           { return true }
func (w sliding) Round(trip time.Duration) time.Duration { return w.Length() + trip }
func (w sliding) check(f *faults)                        { within(f, "window", w.Length(), 1, MaxWindow) }
func (w sliding) onWall() bool                           { return false }
func (w sliding) tolerates(int64) bool                   { return true }

func (w sliding) back(arrived instant) int64 {
	at := arrived.mono + int64(w)
	if w >= coarse {
		grain := int64(w) / grains
		at = (at + grain - 1) / grain * grain
	}
	return at
}

func (w sliding) later(at, rounds, trip int64) int64 {
	return at + rounds*(int64(w)+trip)
}

type aligned struct{ Calendar }

func (w aligned) String() string                    { return w.Unit.String() }
func (w aligned) Length() time.Duration             { return w.Unit.length() }
func (w aligned) Slides() bool                      { return false }
func (w aligned) Round(time.Duration) time.Duration { return 0 }
func (w aligned) onWall() bool                      { return true }

func (w aligned) Equal(other Window) bool {
	o, ok := other.(aligned)
	return ok && w.Calendar.Equal(&o.Calendar)
}

func (w aligned) check(f *faults) {
	if w.Unit < Minute || w.Unit > Month {
		f.add("window", "unit is %d, must be minute, hour, day or month", w.Unit)
		return
	}
	if w.Skew < 0 || w.Skew > w.Unit.length() {
		f.add("skew", "is %v, must be from 0 to the window's length (%v)", w.Skew, w.Unit.length())
	}
}

func (w aligned) back(arrived instant) int64 { return w.over(arrived.wall) }

// later computes the first windows; the last one's length stands for those beyond.
func (w aligned) later(at, rounds, trip int64) int64 {
	const computed = 1000
	length := int64(0)
	for range min(rounds, computed) {
		next := w.over(at + trip)
		at, length = next, next-at
	}
	return at + max(0, rounds-computed)*length
}

// jitter is how far apart the two clocks may seem to move: a reading takes one after the
// other, and the system may run something else in between.
const jitter = 20 * time.Millisecond

// tolerates a step up to the skew: the receiver's clock may differ as much from ours.
func (w aligned) tolerates(step int64) bool { return max(step, -step) <= int64(w.Skew+jitter) }

type inFlight struct{}

func (inFlight) String() string                         { return "" }
func (w inFlight) Equal(other Window) bool              { return other == Window(w) }
func (inFlight) Length() time.Duration                  { return 0 }
func (inFlight) Slides() bool                           { return false }
func (inFlight) Round(trip time.Duration) time.Duration { return trip }
func (inFlight) check(*faults)                          {}
func (inFlight) onWall() bool                           { return false }
func (inFlight) back(arrived instant) int64             { return arrived.mono }
func (inFlight) tolerates(int64) bool                   { return true }

func (inFlight) later(at, rounds, trip int64) int64 { return at + rounds*trip }

// A doubt is an offset before a step of the wall clock. Until an instant of the monotonic
// clock it may still be the right one.
type doubt struct{ offset, until int64 }

// maxDoubts bounds the doubts of a limit: the oldest goes first.
const maxDoubts = 8
