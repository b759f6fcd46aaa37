// Command alipay shows Throttler embedded in a merchant's program: it refunds a
// list of trades, with an SDK that knows nothing of Throttler, under the limits of
// alipay.yaml, and then reconciles: each refund is looked up, and what Throttler
// could not know is settled by what the platform says. README.md walks through it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"

	"github.com/smartwalle/alipay/v3"

	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	file := flag.String("config", "examples/alipay/alipay.yaml", "limits and signer, as YAML")
	count := flag.Int("refunds", 10, "how many trades to refund")
	flag.Parse()
	if err := run(ctx, *file, *count, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "alipay:", err)
		os.Exit(1)
	}
}

// run refunds count trades, reconciles, and prints what came of them.
func run(ctx context.Context, file string, count int, out io.Writer) error {
	cfg, cfgErr := config.Load(file, nil)
	m, err := newMerchant()
	if err := errors.Join(cfgErr, err); err != nil {
		return err
	}
	s, err := scheduler.New(cfg.Scheduler)
	if err != nil {
		return err
	}
	defer s.Close()

	// A refund moves money: submitted, it goes on whatever becomes of its caller.
	refunds, err := m.sdk(submitted{s})
	if err != nil {
		return err
	}
	// A query moves nothing: it waits for its slot, and is gone if its caller is.
	queries, err := m.sdk(s.Transport("alipay"))
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	results := make([]string, count)
	for i := range count {
		wg.Go(func() {
			r := refund{trade: fmt.Sprintf("T%04d", i), number: fmt.Sprintf("T%04d-R1", i), amount: "1.00"}
			results[i] = r.make(ctx, refunds) + "; " + r.reconcile(ctx, s, queries)
		})
	}
	wg.Wait()
	for _, r := range results {
		fmt.Fprintln(out, r)
	}
	return ctx.Err()
}

// A refund has one number, however often it is sent.
type refund struct {
	trade, number, amount string
	call                  string // Throttler's
}

// make asks for the refund and says what is known of it then.
func (r *refund) make(ctx context.Context, sdk *alipay.Client) string {
	a, err := sdk.TradeRefund(withCall(ctx, &r.call), alipay.TradeRefund{OutTradeNo: r.trade, OutRequestNo: r.number, RefundAmount: r.amount, RefundReason: "returned"})
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", r.trade, err)
	case a.IsFailure():
		return fmt.Sprintf("%s: refused, %s %s", r.trade, a.Code, a.SubCode)
	}
	return r.trade + ": refunded"
}

// reconcile compares what Throttler knows of the refund with what the platform
// says, and lets the platform decide what is unknown.
func (r *refund) reconcile(ctx context.Context, s *scheduler.Scheduler, sdk *alipay.Client) string {
	q, err := sdk.TradeFastPayRefundQuery(ctx, alipay.TradeFastPayRefundQuery{OutTradeNo: r.trade, OutRequestNo: r.number})
	if err != nil || q.IsFailure() {
		return fmt.Sprintf("the platform does not tell: %v", err)
	}
	made := q.RefundStatus == "REFUND_SUCCESS"
	call, err := s.Get(r.call)
	if err != nil {
		return err.Error()
	}
	if call.State == scheduler.Unknown {
		as := map[bool]scheduler.State{true: scheduler.Done, false: scheduler.Waiting}[made]
		if call, err = s.Resolve(call.ID, as, "reconciled with the refund query"); err != nil {
			return err.Error()
		}
	}
	switch {
	case made && call.State == scheduler.Done && q.RefundAmount == r.amount:
		return "books agree, " + q.RefundAmount
	case !made && call.State != scheduler.Done:
		return fmt.Sprintf("no money was moved, the call is %s", call.State)
	}
	return fmt.Sprintf("BOOKS DIFFER: the call is %s, the platform says %q over %q", call.State, q.RefundStatus, q.RefundAmount)
}

// A merchant is who calls.
type merchant struct{ id, privateKey, platformKey string }

// newMerchant reads ALIPAY_APP_ID, ALIPAY_PRIVATE_KEY_FILE and ALIPAY_PUBLIC_KEY_FILE.
func newMerchant() (merchant, error) {
	var errs []error
	env := func(name string) string {
		v := os.Getenv(name)
		if v == "" {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
		return v
	}
	read := func(name string) string {
		path := env(name)
		if path == "" {
			return ""
		}
		text, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		return string(text)
	}
	m := merchant{env("ALIPAY_APP_ID"), read("ALIPAY_PRIVATE_KEY_FILE"), read("ALIPAY_PUBLIC_KEY_FILE")}
	return m, errors.Join(errs...)
}

// sdk returns the merchant's client over a transport. It signs, as it always does;
// Throttler's signer signs again at the moment of sending.
func (m merchant) sdk(t http.RoundTripper) (*alipay.Client, error) {
	sdk, err := alipay.New(m.id, m.privateKey, true, alipay.WithHTTPClient(&http.Client{Transport: t}))
	if err != nil {
		return nil, fmt.Errorf("the merchant's private key: %w", err)
	}
	if err := sdk.LoadAliPayPublicKey(m.platformKey); err != nil {
		return nil, fmt.Errorf("the platform's public key: %w", err)
	}
	return sdk, nil
}
