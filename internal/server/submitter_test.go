package server

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestKeyOfAnotherSubmitter: a submitter that repeats the request of another one, with its key, is
// told nothing of that call, and makes no second one. An operator is answered with the call.
func TestKeyOfAnotherSubmitter(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	admin := newAdmin(r.s, r.metrics, NewEvents(), slog.New(slog.DiscardHandler), nil)
	submit := func(c access.Caller) (*api.Call, error) {
		req := httptest.NewRequest("POST", "/v1/calls", nil)
		return submitCall(admin, request[api.Submission]{
			Request: req.WithContext(access.With(req.Context(), c)), responseHeader: make(http.Header),
			bytes: []byte(`{"upstream":"pay","method":"POST","target":"/","idempotency_key":"k"}`),
		})
	}
	first, err := submit(access.Caller{Name: "a", Role: access.Submitter})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := submit(access.Caller{Name: "a", Role: access.Submitter}); err != nil || again.ID != first.ID {
		t.Errorf("a repeat by the same submitter: %+v, %v", again, err)
	}
	var refused *scheduler.Error
	if other, err := submit(access.Caller{Name: "b", Role: access.Submitter}); !errors.As(err, &refused) || refused.Reason != scheduler.KeyReused {
		t.Errorf("by another submitter: %+v, %v", other, err)
	}
	if seen, err := submit(access.Caller{Name: "oncall", Role: access.Operator}); err != nil || seen.ID != first.ID {
		t.Errorf("by an operator: %+v, %v", seen, err)
	}
}
