package scheduler

import (
	"errors"
	"log/slog"
	"testing"
)

// A reader does not wait for the close of the stores, which may take as long as a commit.
func TestReadsDoNotWaitForClose(t *testing.T) {
	j := newJournal(nil, slog.New(slog.DiscardHandler))
	if _, err := j.get(t.Context(), "1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a read before the close gives %v, want %v", err, ErrNotFound)
	}
	j.closed = true // as close notes before it begins
	_, err := j.get(t.Context(), "1")
	var refused *Error
	if !errors.As(err, &refused) || refused.Reason != Stopping {
		t.Errorf("a read during the close gives %v, want %q", err, Stopping)
	}
}
