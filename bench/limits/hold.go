package main

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// hold is the least that keeps a limit on arrival: a ledger and a loop, in the
// process of the caller. What the sidecar adds to it is what it costs.
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

// drain takes in the answers that are there.
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
