package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/smartwalle/alipay/v3"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// books compares Throttler's state with the platform's.
type books struct {
	throttler *scheduler.Scheduler
	platform  *alipay.Client
	after     time.Duration // from an attempt until the platform can show its refund
}

// reconcile compares Throttler's state of a refund with the platform's. The platform
// decides an unknown call: the refund was made, or the call is sent again under its
// number, and reconcile waits for its end. A call that is unknown again is left to
// the next run, or to a person. Without an error both agree that the money has
// moved; the answer to the refund alone does not prove it.
func (b books) reconcile(ctx context.Context, r *refund) error {
	if r.call == "" {
		return errors.New("it was not accepted, and is not made")
	}
	for decided := false; ; {
		call, err := b.throttler.Wait(ctx, r.call) // until it is finished, or unknown
		if err != nil {
			return err
		}
		q, err := b.ask(ctx, call, r)
		if err != nil {
			return fmt.Errorf("the call is %s, and the platform does not tell: %w", call.State, err)
		}
		moved := q.RefundStatus == "REFUND_SUCCESS"
		differ := fmt.Errorf("BOOKS DIFFER: the call is %s, the platform says %q over %q", call.State, q.RefundStatus, q.RefundAmount)
		switch {
		case moved && q.RefundAmount != r.amount: // the number belongs to another refund: a person decides
			return differ
		case call.State == scheduler.Unknown && !decided:
			decided = true
			as := upstream.NotExecuted
			if moved {
				as = upstream.Done
			}
			_, err := b.throttler.Resolve(ctx, call.ID, scheduler.Decision{As: as, Attempt: call.Last().N, By: "reconcile", Reason: "reconciled with the refund query"})
			var refused *scheduler.Error
			if errors.As(err, &refused) && (refused.Reason == scheduler.WrongState || refused.Reason == scheduler.ChangedSince) {
				err = nil // Throttler's own query was first
			}
			if err != nil {
				return err
			}
		case moved && call.State == scheduler.Done:
			return nil
		case !moved && call.State != scheduler.Done:
			return fmt.Errorf("no money was moved, the call is %s", call.State)
		default:
			return differ
		}
	}
}

// ask queries a refund, as soon as the platform can show it.
func (b books) ask(ctx context.Context, call *scheduler.Call, r *refund) (*alipay.TradeFastPayRefundQueryRsp, error) {
	if last := call.Last(); last != nil {
		select {
		case <-time.After(time.Until(last.EndedAt.Add(b.after))):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	q, err := b.platform.TradeFastPayRefundQuery(ctx, alipay.TradeFastPayRefundQuery{OutTradeNo: r.trade, OutRequestNo: r.number})
	if err == nil && q.IsFailure() {
		err = &q.Error
	}
	return q, err
}
