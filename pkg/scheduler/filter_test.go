package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestMergedPages: pages of two stores, each of which may end before Max, make one list that has
// each call once, in order.
func TestMergedPages(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var stores [2][]*Call
		var want []string
		f := Filter{Oldest: r.IntN(2) == 0, Max: r.IntN(5)}
		for i := range r.IntN(30) {
			c := &Call{ID: fmt.Sprintf("%03d", i)}
			of := r.IntN(2)
			stores[of] = append(stores[of], c)
			want = append(want, c.ID)
		}
		byID := func(a, b *Call) int { return f.Compare(a.ID, b.ID) }
		slices.SortFunc(stores[0], byID)
		slices.SortFunc(stores[1], byID)
		slices.SortFunc(want, f.Compare)
		page := func(calls []*Call, after string) *ListPage {
			if i, found := slices.BinarySearchFunc(calls, &Call{ID: after}, byID); after != "" {
				if found {
					i++
				}
				calls = calls[i:]
			}
			most := 1 + r.IntN(6)
			if f.Max > 0 {
				most = min(most, f.Max)
			}
			if len(calls) <= most {
				return &ListPage{Calls: calls}
			}
			return &ListPage{calls[:most], calls[most-1].ID}
		}
		var got []string
		for after, more := "", true; more && len(got) <= len(want); more = after != "" {
			p := f.merge(page(stores[0], after), page(stores[1], after))
			if f.Max > 0 && len(p.Calls) > f.Max {
				t.Errorf("seed %d: a page of %d calls, at most %d", seed, len(p.Calls), f.Max)
			}
			for _, c := range p.Calls {
				got = append(got, c.ID)
			}
			after = p.Next
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d, %+v: %v, want %v", seed, f, got, want)
		}
	}
}

// TestIDList compares an idList with a sorted slice.
func TestIDList(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		var l idList
		var all []string
		for range 6000 {
			id := fmt.Sprintf("%05d", r.IntN(20_000))
			i, there := slices.BinarySearch(all, id)
			switch {
			case !there && r.IntN(3) > 0:
				l.add(id)
				all = slices.Insert(all, i, id)
			case there || len(all) > 0:
				if !there {
					id = all[r.IntN(len(all))]
					i, _ = slices.BinarySearch(all, id)
				}
				l.remove(id)
				all = slices.Delete(all, i, i+1)
			}
		}
		l.remove("none")
		for _, oldest := range []bool{true, false} {
			want := slices.Clone(all)
			if !oldest {
				slices.Reverse(want)
			}
			var got []string
			for after := ""; len(got) <= len(all); {
				ids := l.page(after, oldest, 300)
				if got = append(got, ids...); len(ids) < 300 {
					break
				}
				after = ids[len(ids)-1]
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, oldest %v: %d ids, want %d: %s", seed, oldest, len(got), len(want), strings.Join(got[:min(5, len(got))], " "))
			}
		}
		for _, c := range l.chunks {
			if len(c) == 0 || len(c) > idChunk {
				t.Errorf("a chunk has %d ids", len(c))
			}
		}
	}
}
