package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Trace returns an observer that logs a line for each call at level debug, without
// anything of the request.
func Trace(log *slog.Logger) func(scheduler.Event) {
	return func(e scheduler.Event) {
		if !log.Enabled(context.Background(), slog.LevelDebug) {
			return
		}
		switch e.Kind {
		case scheduler.EventRefused:
			log.Debug("a call was refused", "call", e.Call.ID, "upstream", e.Call.Upstream, "reason", e.Reason)
		case scheduler.EventEnded:
			what := "a call has ended"
			if e.Reason == scheduler.Gone {
				what = "a call was dropped: its client has left, and it was not executed"
			}
			log.Debug(what, "call", e.Call.ID, "upstream", e.Call.Upstream, "state", e.Call.State,
				"outcome", e.Call.Outcome(), "wait", e.Call.Waited(time.Now()).String())
		}
	}
}
