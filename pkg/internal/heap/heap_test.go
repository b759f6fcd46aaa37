package heap_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/internal/heap"
)

type job struct{ due, place int }

func newJobs() heap.Heap[*job] {
	return heap.New(func(j *job) *int { return &j.place }, func(a, b *job) bool { return a.due < b.due })
}

func Example() {
	h := newJobs()
	early, late := &job{due: 1}, &job{due: 9}
	h.Add(late)
	h.Add(early)
	early.due = 10
	h.Fix(early)
	fmt.Println(h.Pop().due, h.Contains(late), h.Size())
	// Output: 9 false 1
}

// TestAgainstSlice plays random operations on a heap and on a slice that is sorted
// each time.
func TestAgainstSlice(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		h := newJobs()
		var all []*job
		for range 500 {
			switch n := len(all); {
			case n == 0 || r.IntN(3) == 0:
				j := &job{due: r.IntN(100)}
				h.Add(j)
				all = append(all, j)
			case r.IntN(3) == 0:
				j := all[r.IntN(n)]
				j.due = r.IntN(100)
				h.Fix(j)
			case r.IntN(2) == 0:
				i := r.IntN(n)
				h.Remove(all[i])
				all = slices.Delete(all, i, i+1)
			default:
				j := h.Pop()
				all = slices.DeleteFunc(all, func(o *job) bool { return o == j })
			}
			if h.Size() != len(all) {
				t.Fatalf("seed %d: %d items, want %d", seed, h.Size(), len(all))
			}
			if len(all) > 0 && h.First().due != slices.MinFunc(all, func(a, b *job) int { return a.due - b.due }).due {
				t.Fatalf("seed %d: the first is due at %d", seed, h.First().due)
			}
			for _, j := range all {
				if !h.Contains(j) {
					t.Fatalf("seed %d: an item is missing", seed)
				}
			}
		}
	}
}
