package retry

import "slices"

// The outcomes of the last subjects, each as its last attempt has ended. They take 16 bytes for
// each, and are looked through by each attempt: there are few.
type outcomes struct {
	last    []outcome // the latest last; its capacity bounds it
	unknown int       // of last
}

// An outcome is how the last attempt of a subject has ended.
type outcome struct {
	subject uint64
	unknown bool
}

// newOutcomes returns the outcomes of the last size subjects.
func newOutcomes(size int) outcomes { return outcomes{last: make([]outcome, 0, size)} }

// note puts the outcome of a subject behind the others. An earlier one of the subject goes; if it
// has none, the oldest one of another goes if there is no more room.
func (o *outcomes) note(subject uint64, unknown bool) {
	if cap(o.last) == 0 {
		return
	}
	gone := slices.IndexFunc(o.last, func(e outcome) bool { return e.subject == subject })
	if gone < 0 && len(o.last) == cap(o.last) {
		gone = 0
	}
	if gone >= 0 {
		if o.last[gone].unknown {
			o.unknown--
		}
		o.last = slices.Delete(o.last, gone, gone+1)
	}
	if unknown {
		o.unknown++
	}
	o.last = append(o.last, outcome{subject, unknown})
}

// A ring has the last values of a row.
type ring[T any] struct {
	values []T
	next   int // where the next value goes, once values is full
}

// newRing returns a ring of the last size values.
func newRing[T any](size int) ring[T] { return ring[T]{values: make([]T, 0, size)} }

// add adds a value, in the place of the oldest one if it is full.
func (r *ring[T]) add(v T) {
	if len(r.values) < cap(r.values) {
		r.values = append(r.values, v)
		return
	}
	if len(r.values) > 0 {
		r.values[r.next] = v
		r.next = (r.next + 1) % len(r.values)
	}
}
