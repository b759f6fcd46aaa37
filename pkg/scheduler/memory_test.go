package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestMemoryCountsHeadersToo(t *testing.T) {
	m := NewMemory(1000, 1<<20).(*memory)
	for i := range 100 {
		m.Record(t.Context(), &Call{ID: fmt.Sprint(i), State: Done, Response: &Response{Headers: http.Header{"X": {strings.Repeat("x", 200<<10)}}}})
	}
	if held := len(m.calls) * 200 << 10; held > 1<<20 {
		t.Errorf("%d bytes of headers are held, at most 1 MiB may be", held)
	}
}

func TestMemoryRecordsACallTwice(t *testing.T) {
	m := NewMemory(1, 1<<20).(*memory)
	for _, id := range []string{"a", "b"} {
		if _, err := m.Accept(context.Background(), &Entry{Call: &Call{ID: id, State: Waiting}}); err != nil {
			t.Fatal(err)
		}
		for n, want := range []error{nil, ErrNotFound} {
			if err := m.Record(t.Context(), &Call{ID: id, State: Done}); !errors.Is(err, want) {
				t.Errorf("record %d of %s: %v, want %v", n+1, id, err, want)
			}
		}
	}
	if _, err := m.Get(t.Context(), "b"); err != nil || len(m.calls) != 1 {
		t.Errorf("%d calls are held, the last one: %v", len(m.calls), err)
	}
}
