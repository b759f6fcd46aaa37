package quota

import (
	"testing"
	"time"
)

// TestPace: no call of a key goes before the pace says so, other keys do, and the pace ends.
func TestPace(t *testing.T) {
	l := New(start, Limit{Name: "merchant", Calls: 10, Window: Sliding(time.Second), MaxKeys: 9})
	slow, other := Need{Limit: 0, Key: "slow", Cost: 1}, Need{Limit: 0, Key: "other", Cost: 1}
	each := func(calls int) time.Duration { return time.Duration(calls) * time.Second }
	l.Pace(0, "slow", at(3*time.Second), each)
	if got := l.Next(at(0), slow); !got.Equal(at(3 * time.Second)) {
		t.Errorf("the next call goes at %v", got.Sub(start))
	}
	if _, ok := l.Take(at(2*time.Second), []Need{slow}); ok {
		t.Error("a call goes before its pace")
	}
	if eta := l.ETA(at(0), slow, 4, 0); eta.Before(at(7 * time.Second)) {
		t.Errorf("behind four calls it is to go at %v", eta.Sub(start))
	}
	if _, ok := l.Take(at(2*time.Second), []Need{other}); !ok {
		t.Error("a call of another key waits")
	}
	l.Pace(0, "other", at(9*time.Second), each) // beside the first
	if _, ok := l.Take(at(3*time.Second), []Need{slow}); !ok {
		t.Error("a call waits beyond its pace")
	}
	l.Pace(0, "other", time.Time{}, nil)
	if _, ok := l.Take(at(3*time.Second), []Need{other}); !ok {
		t.Error("a pace that has ended holds a call")
	}
}
