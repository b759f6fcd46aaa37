// Command alipay shows Throttler embedded in a merchant's program. It makes the
// refunds of a file under the limits of alipay.yaml, with an SDK that does not know
// of Throttler. Then it reconciles: it queries each refund, and the platform's
// answer settles unknown calls. Another run with the same file continues the first.
// README.md walks through it. With -local it needs no account.
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/smartwalle/alipay/v3"

	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

func main() {
	// The first signal ends the queries, the second one the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	var j job
	flag.StringVar(&j.config, "config", "examples/alipay/alipay.yaml", "limits, signer and store, as YAML")
	flag.StringVar(&j.refunds, "refunds", "examples/alipay/refunds.csv", "CSV file of refunds: trade, refund number, amount")
	flag.DurationVar(&j.after, "after", 10*time.Second, "wait between a refund and the query about it")
	standIn := flag.Bool("local", false, "make the refunds of this example at a stand-in in this process; needs no account")
	flag.Parse()
	run := func(j job) error { return j.run(ctx, os.Stdout) }
	var err error
	if *standIn {
		err = local(run, os.Stdout)
	} else {
		err = run(j)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "alipay:", err)
		os.Exit(1)
	}
}

// A job makes the refunds of a file.
type job struct {
	config, refunds string
	after           time.Duration
}

// run makes the refunds, reconciles, and prints those for which both books agree
// that the money has moved; the error joins all others. When ctx ends, attempts in
// flight still end, and waiting refunds stay in the store for the next run.
func (j job) run(ctx context.Context, out io.Writer) error {
	cfg, cfgErr := config.Load(j.config, nil)
	m, err := newMerchant()
	list, listErr := read(j.refunds)
	if err := errors.Join(cfgErr, err, listErr); err != nil {
		return err
	}
	if cfg.Scheduler.Store, err = cfg.OpenStore(context.Background(), store.Options{}); err != nil {
		return err
	}
	s, err := scheduler.New(cfg.Scheduler)
	if err != nil {
		return err
	}
	defer s.Close()

	// A refund moves money: it is submitted, and does not end with its caller.
	refunds, err := m.sdk(submitted{s})
	if err != nil {
		return err
	}
	// A query moves no money: it waits for its slot, and ends with its caller.
	queries, err := m.sdk(s.Transport("alipay"))
	if err != nil {
		return err
	}
	books := books{s, queries, j.after}
	var wg sync.WaitGroup
	errs := make([]error, len(list))
	made := make([]string, len(list))
	for i, r := range list {
		wg.Go(func() {
			made[i] = r.make(ctx, refunds)
			if err := books.reconcile(ctx, r); err != nil {
				errs[i] = fmt.Errorf("%s; %w", made[i], err)
			}
		})
	}
	wg.Wait()
	for i, r := range list {
		if errs[i] == nil {
			fmt.Fprintf(out, "%s: refunded; books agree, %s\n", r.trade, r.amount)
		}
	}
	return errors.Join(errs...)
}

// A refund keeps its number over all its attempts and all runs.
type refund struct {
	trade, number, amount string
	call                  string // Throttler's; empty if it was not accepted
}

// read reads a file of refunds.
func read(file string) ([]*refund, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := csv.NewReader(f)
	lines.FieldsPerRecord, lines.Comment, lines.TrimLeadingSpace = 3, '#', true
	records, err := lines.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var list []*refund
	for _, r := range records {
		list = append(list, &refund{trade: r[0], number: r[1], amount: r[2]})
	}
	return list, nil
}

// make makes the refund and describes its result.
func (r *refund) make(ctx context.Context, sdk *alipay.Client) string {
	a, err := sdk.TradeRefund(withRefund(ctx, r), alipay.TradeRefund{OutTradeNo: r.trade, OutRequestNo: r.number, RefundAmount: r.amount, RefundReason: "returned"})
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", r.trade, err)
	case a.IsFailure():
		return fmt.Sprintf("%s: refused, %s %s", r.trade, a.Code, a.SubCode)
	}
	return r.trade + ": refunded"
}

// A merchant is the caller.
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

// sdk returns the merchant's client over a transport. The client signs as usual;
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
