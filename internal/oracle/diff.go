package oracle

import (
	"fmt"
	"slices"
	"time"
)

// Diff compares the instants at which each call was sent with the history of the load. It
// describes the first send that only one of them has, because the others follow from it;
// empty if there is none.
func (h *History) Diff(l *Load, sent [][]time.Duration) string {
	first, at := -1, time.Duration(0)
	for i := range l.Calls {
		got, want := sent[i], h.Sent(i)
		for len(got) > 0 && len(want) > 0 && got[0] == want[0] {
			got, want = got[1:], want[1:]
		}
		if rest := slices.Concat(got, want); len(rest) > 0 && (first < 0 || slices.Min(rest) < at) {
			first, at = i, slices.Min(rest)
		}
	}
	if first < 0 {
		return ""
	}
	return fmt.Sprintf("call %d %+v was sent at %v, the oracle sends it at %v", first, *l.Calls[first], sent[first], h.Sent(first))
}
