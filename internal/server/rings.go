package server

import (
	"math"
	"strings"
	"time"
)

// A resolution is one step of a history, and how many of them are kept.
type resolution struct {
	name  string
	step  time.Duration
	steps int
}

var resolutions = []resolution{{"1s", time.Second, 300}, {"10s", 10 * time.Second, 360}, {"1m", time.Minute, 1440}}

// A series keeps some values over time, in a ring of each resolution: 8,400 bytes, and as much again
// for each value. It takes the instant of a sample, and must not be used concurrently.
type series struct {
	counts []bool // by value: what was counted since the sample before, which adds up; else the greatest counts
	rings  []ring // by resolution
}

// A ring has a place for each of the last steps.
type ring struct {
	numbers []uint32 // of the step that has a place; seconds since 1970, by the length of a step
	values  []uint32 // of all places, one after the other
}

// A moment is the values of one step. They are not to be changed.
type moment struct {
	at     time.Time // its beginning
	values []uint32
}

func newSeries(counts []bool) *series {
	s := &series{counts: counts}
	for _, r := range resolutions {
		s.rings = append(s.rings, ring{make([]uint32, r.steps), make([]uint32, r.steps*len(counts))})
	}
	return s
}

// place returns the number of the step of an instant, and its place in the ring.
func (r resolution) place(at time.Time) (number uint32, place int) {
	n := at.Unix() / int64(r.step/time.Second)
	return uint32(n), int(n % int64(r.steps))
}

// add adds a sample.
func (s *series) add(at time.Time, sample []uint32) {
	for i, r := range resolutions {
		number, place := r.place(at)
		kept := s.rings[i].at(place, len(s.counts))
		if s.rings[i].numbers[place] != number {
			s.rings[i].numbers[place] = number
			copy(kept, sample)
			continue
		}
		for j, v := range sample {
			if s.counts[j] {
				kept[j] += min(v, math.MaxUint32-kept[j])
			} else {
				kept[j] = max(kept[j], v)
			}
		}
	}
}

// at returns the values of a place.
func (r *ring) at(place, n int) []uint32 { return r.values[place*n : (place+1)*n] }

// read returns the steps of a resolution that begin from one instant on, and before another one that
// is not to come, the oldest first. A step without a sample is left out.
func (s *series) read(i int, from, to time.Time) []moment {
	r, all := resolutions[i], []moment{}
	for at := to.Truncate(r.step).Add(-time.Duration(r.steps-1) * r.step); at.Before(to); at = at.Add(r.step) {
		if number, place := r.place(at); !at.Before(from) && s.rings[i].numbers[place] == number {
			all = append(all, moment{at, append([]uint32(nil), s.rings[i].at(place, len(s.counts))...)})
		}
	}
	return all
}

// Flows whose attempts are counted.
const (
	maxLately     = 1000 // of an upstream
	latelyMinutes = 10
)

// lately counts the attempts of the flows of an upstream in the last ten minutes, in steps of one. Of
// more flows than maxLately some have no count of their own. It must not be used concurrently.
type lately struct {
	minute int64 // since 1970, the last one
	total  [latelyMinutes]uint32
	flows  map[string]*[latelyMinutes]uint32
}

// add counts an attempt of a flow.
func (l *lately) add(now time.Time, flow string) {
	l.advance(now)
	place := l.minute % latelyMinutes
	l.total[place]++
	c := l.flows[flow]
	if c == nil {
		if len(l.flows) == maxLately {
			return
		}
		if l.flows == nil {
			l.flows = make(map[string]*[latelyMinutes]uint32)
		}
		c = new([latelyMinutes]uint32)
		l.flows[strings.Clone(flow)] = c // it may be a part of a request
	}
	c[place]++
}

// advance forgets the minutes that are over, and the flows that have no count left.
func (l *lately) advance(now time.Time) {
	minute := now.Unix() / 60
	for l.minute = max(l.minute, minute-latelyMinutes); l.minute < minute; {
		l.minute++
		place := l.minute % latelyMinutes
		l.total[place] = 0
		for flow, c := range l.flows {
			if c[place] = 0; *c == [latelyMinutes]uint32{} {
				delete(l.flows, flow)
			}
		}
	}
}

// sums returns the attempts of all flows, and of each.
func (l *lately) sums(now time.Time) (total int, flows map[string]int) {
	l.advance(now)
	flows = make(map[string]int, len(l.flows))
	for flow, c := range l.flows {
		flows[flow] = sum(c)
	}
	return sum(&l.total), flows
}

// latelySince returns the instant from which on attempts count.
func latelySince(now time.Time) time.Time {
	return now.Truncate(time.Minute).Add(-(latelyMinutes - 1) * time.Minute)
}

func sum(counts *[latelyMinutes]uint32) (n int) {
	for _, c := range counts {
		n += int(c)
	}
	return n
}
