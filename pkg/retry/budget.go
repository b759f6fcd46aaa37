package retry

import "time"

// A Budget bounds repeats to a share of first attempts, so that they neither
// overload a failing platform nor starve new calls (the retry budget of Finagle
// and gRPC). Each first sending earns Share of a repeat; besides, each Floor earns
// one, so that a quiet upstream has repeats too. Earned repeats are kept up to Most.
// The zero Budget has no bound.
//
// A Budget has state and belongs to one goroutine.
type Budget struct {
	Share float64       // repeats per first sending; zero: no bound
	Floor time.Duration // time for one repeat without any; zero: DefaultFloor
	Most  float64       // repeats that can be saved; zero: DefaultMost

	saved float64
	since time.Time // until when Floor has been counted; zero: for ever, so a new budget is full
}

// Defaults of the fields of a [Budget].
const (
	DefaultFloor = 100 * time.Millisecond
	DefaultMost  = 10
)

// First records a first sending.
func (b *Budget) First() {
	b.saved = min(b.most(), b.saved+b.Share)
}

// Take takes a repeat, or returns when there will be one if no call is sent until then.
func (b *Budget) Take(now time.Time) (ok bool, next time.Time) {
	if b.Share == 0 {
		return true, now
	}
	b.earn(now)
	if b.saved >= 1 {
		b.saved--
		return true, now
	}
	wait := time.Duration((1 - b.saved) * float64(b.floor()))
	return false, now.Add(wait + 1) // the fraction of a nanosecond counts too
}

// earn adds the repeats that Floor has earned since the last time.
func (b *Budget) earn(now time.Time) {
	if passed := now.Sub(b.since); passed > 0 {
		b.saved = min(b.most(), b.saved+float64(passed)/float64(b.floor()))
		b.since = now
	}
}

func (b *Budget) floor() time.Duration {
	if b.Floor == 0 {
		return DefaultFloor
	}
	return b.Floor
}

func (b *Budget) most() float64 {
	if b.Most == 0 {
		return DefaultMost
	}
	return b.Most
}
