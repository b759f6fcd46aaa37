package planner

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTreapAgainstSlice adds and removes calls at random, in the treap and in a sorted
// slice.
func TestTreapAgainstSlice(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		var tr treap[int]
		var all []*Item[int]
		order := func(a, b *Item[int]) int {
			return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Seq, b.Seq))
		}
		for i := range 500 {
			if len(all) == 0 || r.IntN(5) < 3 {
				it := &Item[int]{Seq: uint64(r.IntN(1000)<<16 + i + 1), Priority: int16(r.IntN(3) - 1)}
				tr.add(it)
				at, _ := slices.BinarySearchFunc(all, it, order)
				all = slices.Insert(all, at, it)
			} else {
				at := r.IntN(len(all))
				tr.remove(all[at])
				if all[at].Queued() || all[at].left != nil || all[at].right != nil {
					t.Fatalf("seed %d: an item that was removed has a place", seed)
				}
				all = slices.Delete(all, at, at+1)
			}
			if tr.size() != len(all) || len(all) > 0 && tr.first() != all[0] || len(all) == 0 && tr.first() != nil {
				t.Fatalf("seed %d: %d items with %+v first, want %d", seed, tr.size(), tr.first(), len(all))
			}
			for at, it := range all {
				if n := tr.before(it.rank()); n != at {
					t.Fatalf("seed %d: %d calls go before call %d", seed, n, at)
				}
			}
			if n := tr.before(rank{priority: math.MinInt16 - 1}); n != len(all) {
				t.Fatalf("seed %d: %d calls go before the lowest rank, want %d", seed, n, len(all))
			}
		}
		if d := depth(tr.root); len(all) > 50 && d > 4*int(math.Log2(float64(len(all)))) {
			t.Errorf("seed %d: %d items are %d deep", seed, len(all), d)
		}
	}
}

// TestTreapInOrder adds calls by age, as they come: the treap must not become a list.
func TestTreapInOrder(t *testing.T) {
	const n = 100_000
	items := make([]Item[int], n)
	var tr treap[int]
	for i := range items {
		items[i].Seq = uint64(i + 1)
		tr.add(&items[i])
	}
	if d := depth(tr.root); d > 60 {
		t.Errorf("%d calls are %d deep", n, d)
	}
	for i := range items {
		if tr.first() != &items[i] {
			t.Fatalf("call %d is first, want %d", tr.first().Seq-1, i)
		}
		tr.remove(&items[i])
	}
}

func depth[T any](it *Item[T]) int {
	if it == nil {
		return 0
	}
	return 1 + max(depth(it.left), depth(it.right))
}
