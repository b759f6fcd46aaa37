package main

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// hold is the smallest limiter that is exact on arrival: a ledger and a loop
// in the caller's process. The difference between it and the sidecar is the
// cost of the sidecar.
type hold struct {
	ledger  *quota.Ledger
	needs   []quota.Need
	answers chan quota.Attempt
}

func newHold(w workload) *hold {
	return &hold{
		ledger:  quota.New(time.Now(), quota.Limit{Name: "app", Calls: w.calls, Window: quota.Sliding(w.window)}),
		needs:   []quota.Need{{Cost: 1}},
		answers: make(chan quota.Attempt, len(w.due)+w.calls),
	}
}

func (h *hold) wait() error {
	for {
		h.drain()
		short, ok := h.ledger.Take(time.Now(), h.needs)
		if ok {
			return nil
		}
		var opens <-chan time.Time // never, unless the ledger knows
		if !short.Until.IsZero() {
			opens = time.After(time.Until(short.Until))
		}
		select {
		case a := <-h.answers:
			h.ledger.Return(time.Now(), h.needs, a)
		case <-opens:
		}
	}
}

// drain reads the answers received so far.
func (h *hold) drain() {
	for {
		select {
		case a := <-h.answers:
			h.ledger.Return(time.Now(), h.needs, a)
		default:
			return
		}
	}
}

func (h *hold) ended(sent, answered time.Time) {
	h.answers <- quota.Attempt{Sent: sent, End: answered}
}
