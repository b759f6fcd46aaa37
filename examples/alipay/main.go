// Command alipay shows Throttler embedded in a merchant's program: it refunds a
// list of trades and looks each refund up, with an SDK that knows nothing of
// Throttler, under the limits of alipay.yaml.
//
// The SDK signs a request when it is made; behind a queue that would be too
// early. So a signer signs each request anew at the moment it is sent.
package main

import (
	"bytes"
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
	"time"

	"github.com/smartwalle/alipay/v3"

	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func main() {
	// The first signal ends the queries, the second one everything.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	file := flag.String("config", "examples/alipay/alipay.yaml", "the limits, as YAML")
	count := flag.Int("refunds", 10, "how many trades to refund")
	flag.Parse()
	if err := run(ctx, *file, *count, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "alipay:", err)
		os.Exit(1)
	}
}

// run refunds count trades and prints what came of them; the error joins what is
// not known to be refunded. When ctx ends, refunds that Throttler has accepted are
// waited for. The merchant is named by
// ALIPAY_APP_ID, ALIPAY_PRIVATE_KEY_FILE and ALIPAY_PUBLIC_KEY_FILE.
func run(ctx context.Context, file string, count int, out io.Writer) error {
	cfg, err := config.Load(file, nil)
	if err != nil {
		return err
	}
	m, err := newMerchant()
	if err != nil {
		return err
	}
	// The upstream is completed by what no YAML can hold: the signer.
	up := cfg.Scheduler.Upstreams["alipay"]
	if up.Signer, err = newSigner(m); err != nil {
		return err
	}
	cfg.Scheduler.Upstreams["alipay"] = up

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
	amounts, errs := make([]string, count), make([]error, count)
	for i := range count {
		wg.Go(func() { amounts[i], errs[i] = refund(ctx, refunds, queries, fmt.Sprintf("T%04d", i)) })
	}
	wg.Wait()
	for i, amount := range amounts {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("T%04d: %w", i, errs[i])
			continue
		}
		fmt.Fprintf(out, "T%04d refunded %s\n", i, amount)
	}
	return errors.Join(errs...)
}

// refund refunds one trade and looks the refund up; it returns the amount. Only
// the status of the query says that the money has moved.
func refund(ctx context.Context, refunds, queries *alipay.Client, trade string) (string, error) {
	number := trade + "-R1" // one number for one refund, however often it is sent
	r, err := refunds.TradeRefund(ctx, alipay.TradeRefund{OutTradeNo: trade, OutRequestNo: number, RefundAmount: "1.00", RefundReason: "returned"})
	if err != nil {
		return "", fmt.Errorf("refund: %w", err)
	}
	if !r.IsSuccess() {
		return "", fmt.Errorf("refund: %w", &r.Error)
	}
	q, err := queries.TradeFastPayRefundQuery(ctx, alipay.TradeFastPayRefundQuery{OutTradeNo: trade, OutRequestNo: number})
	switch {
	case err != nil:
		return "", fmt.Errorf("query: %w", err)
	case !q.IsSuccess():
		return "", fmt.Errorf("query: %w", &q.Error)
	case q.RefundStatus != "REFUND_SUCCESS":
		return "", fmt.Errorf("query: the refund's status is %q; look again later", q.RefundStatus)
	}
	return q.RefundAmount, nil
}

// submitted is an http.RoundTripper over Submit and Wait.
type submitted struct{ s *scheduler.Scheduler }

func (t submitted) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	call, err := t.s.Submit(req.Context(), scheduler.Request{
		Upstream: "alipay", Method: req.Method, Target: req.URL.RequestURI(), Header: scheduler.EndToEnd(req.Header), Body: body,
	})
	if err != nil {
		return nil, err
	}
	// It is under way, whatever becomes of its caller: without a durable store it
	// would be lost if this program ended now.
	if call, err = t.s.Wait(context.WithoutCancel(req.Context()), call.ID); err != nil {
		return nil, err
	}
	if call.Response == nil {
		return nil, fmt.Errorf("call %s is %s; look the refund up before you repeat it", call.ID, call.State)
	}
	r := call.Response
	return &http.Response{StatusCode: r.Status, Header: r.Headers, Body: io.NopCloser(bytes.NewReader(r.Body)), Request: req}, nil
}

// A merchant is who signs.
type merchant struct{ id, privateKey, platformKey string }

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

// sdk returns the merchant's client over a transport.
func (m merchant) sdk(t http.RoundTripper) (*alipay.Client, error) {
	beijing := time.FixedZone("Beijing", 8*60*60) // in which the platform reads time stamps
	sdk, err := alipay.New(m.id, m.privateKey, true, alipay.WithTimeLocation(beijing), alipay.WithHTTPClient(&http.Client{Transport: t}))
	if err != nil {
		return nil, fmt.Errorf("the merchant's private key: %w", err)
	}
	if err := sdk.LoadAliPayPublicKey(m.platformKey); err != nil {
		return nil, fmt.Errorf("the platform's public key: %w", err)
	}
	return sdk, nil
}
