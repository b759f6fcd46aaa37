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
	"syscall"

	"github.com/smartwalle/alipay/v3"

	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func main() {
	// The first signal ends the queries, the second one everything.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	file := flag.String("config", "examples/alipay/alipay.yaml", "limits and signer, as YAML")
	count := flag.Int("refunds", 10, "how many trades to refund")
	flag.Parse()
	if err := run(ctx, *file, *count, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "alipay:", err)
		os.Exit(1)
	}
}

// run refunds count trades, reconciles, and prints those on which the books agree
// that the money has moved; the error joins all others. When ctx ends, refunds that
// Throttler has accepted are waited for.
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
	results, errs := make([]string, count), make([]error, count)
	for i := range count {
		wg.Go(func() {
			r := refund{trade: fmt.Sprintf("T%04d", i), number: fmt.Sprintf("T%04d-R1", i), amount: "1.00"}
			made := r.make(ctx, refunds)
			if err := r.reconcile(ctx, s, queries); err != nil {
				errs[i] = fmt.Errorf("%s; %w", made, err)
			} else {
				results[i] = made + "; books agree, " + r.amount
			}
		})
	}
	wg.Wait()
	for i, result := range results {
		if errs[i] == nil {
			fmt.Fprintln(out, result)
		}
	}
	return errors.Join(errs...)
}

// A refund has one number, however often it is sent.
type refund struct {
	trade, number, amount string
	call                  string // Throttler's; empty if it was not accepted
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
// says, and lets the platform decide what is unknown. Without an error both say
// that the money has moved: the answer to the refund alone does not say so.
func (r *refund) reconcile(ctx context.Context, s *scheduler.Scheduler, sdk *alipay.Client) error {
	if r.call == "" {
		return errors.New("it was not accepted, no money was moved")
	}
	q, err := sdk.TradeFastPayRefundQuery(ctx, alipay.TradeFastPayRefundQuery{OutTradeNo: r.trade, OutRequestNo: r.number})
	if err == nil && q.IsFailure() {
		err = &q.Error
	}
	if err != nil {
		return fmt.Errorf("the platform does not tell: %w", err)
	}
	moved := q.RefundStatus == "REFUND_SUCCESS"
	call, err := s.Get(r.call)
	if err != nil {
		return err
	}
	if call.State == scheduler.Unknown {
		as := map[bool]scheduler.State{true: scheduler.Done, false: scheduler.Waiting}[moved]
		if call, err = s.Resolve(call.ID, as, "reconciled with the refund query"); err != nil {
			return err
		}
	}
	switch {
	case moved && call.State == scheduler.Done && q.RefundAmount == r.amount:
		return nil
	case !moved && call.State != scheduler.Done:
		return fmt.Errorf("no money was moved, the call is %s", call.State)
	}
	return fmt.Errorf("BOOKS DIFFER: the call is %s, the platform says %q over %q", call.State, q.RefundStatus, q.RefundAmount)
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
