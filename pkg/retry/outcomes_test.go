package retry

import (
	"math/rand/v2"
	"testing"
	"time"
)

// attempted is one that a model remembers.
type attempted struct {
	subject uint64
	unknown bool
}

// unknownOf counts the unknown ones among the last outcomes of the last subjects, by a look at all attempts.
func unknownOf(all []attempted, of int) (unknown int) {
	seen := make(map[uint64]bool)
	for i := len(all) - 1; i >= 0 && len(seen) < of; i-- {
		if a := all[i]; !seen[a.subject] {
			seen[a.subject] = true
			if a.unknown {
				unknown++
			}
		}
	}
	return unknown
}

// TestOutcomesOfSubjects compares a breaker with a model that looks at all attempts, of few and of many subjects.
func TestOutcomesOfSubjects(t *testing.T) {
	opened, healed := 0, 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		trip := Trip{Unknown: 1 + r.IntN(6)}
		trip.Of = trip.Unknown + r.IntN(8)
		p, subjects, share := newPlay(t, trip), 1+r.IntN(3*trip.Of), r.Float64()
		var all []attempted
		for n := range 200 {
			now := at(time.Duration(n) * time.Hour)
			if p.Open() {
				p.Reset(now)
				all = nil
			}
			before := unknownOf(all, trip.Of)
			a := attempted{uint64(r.IntN(subjects)), r.Float64() < share}
			reach := Reached
			if a.unknown {
				reach = Unsure
			}
			if r.IntN(10) == 0 {
				reach = Unproven
			} else {
				all = append(all, a)
			}
			p.Begin(now, uint64(n+1))
			p.Record(now, uint64(n+1), a.subject, now, reach, 0.5)
			want := unknownOf(all, trip.Of)
			if p.Open() != (want >= trip.Unknown) {
				t.Fatalf("seed %d, attempt %d: open is %v, and of the last %d subjects %d are unknown, %d open it", seed, n, p.Open(), trip.Of, want, trip.Unknown)
			}
			if !p.Open() && (p.outcomes.unknown != want || len(p.outcomes.last) > trip.Of) {
				t.Fatalf("seed %d, attempt %d: it counts %d unknown of %d, want %d of %d", seed, n, p.outcomes.unknown, len(p.outcomes.last), want, trip.Of)
			}
			if p.Open() {
				opened++
			} else if want < before {
				healed++
			}
		}
	}
	if opened < 1000 || healed < 1000 {
		t.Errorf("%d openings and %d repeats that healed: the loads are too tame", opened, healed)
	}
}

// TestRepeatsOpenNothing: a payload that always fails is one outcome, how often it is ever sent, and a success of its repeat
// takes it back.
func TestRepeatsOpenNothing(t *testing.T) {
	p := newPlay(t, Trip{Unknown: 3, Of: 5})
	send := func(subject uint64, reach Reach) {
		p.id++
		p.Begin(at(0), p.id)
		p.Record(at(0), p.id, subject, at(0), reach, 0.5)
	}
	for range 1000 {
		send(1, Unsure)
		send(2, Unsure)
	}
	p.is(0, Healthy)
	send(2, Reached)
	send(3, Unsure)
	p.is(0, Healthy)
	if send(2, Unsure); p.Health() != Failing {
		t.Errorf("three subjects are unknown, and it is %v", p.Health())
	}
}

func BenchmarkRecord(b *testing.B) {
	for name, of := range map[string]int{"of=20": 20, "of=1000": 1000} {
		b.Run(name, func(b *testing.B) {
			var p Breaker
			p.Set(Trip{Unknown: of, Of: of})
			for n := uint64(1); b.Loop(); n++ {
				p.Begin(start, n)
				p.Record(start, n, n, start, Reached, 0.5)
			}
		})
	}
}
