package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/smartwalle/alipay/v3"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// loadTimeout ends a load that would hang; the demo's takes some 20 seconds.
const loadTimeout = 2 * time.Minute

// A load has the merchant's calls and makes them at once with the SDK. Only the base
// URL differs between the two runs.
type load struct {
	calls  []func(context.Context, *alipay.Client) error
	client *alipay.Client
	close  func() // the client's idle connections

	done atomic.Int64

	mu        sync.Mutex
	succeeded int
	reasons   map[string]int // failures of the other calls
}

// newLoad prepares the calls of s to the API at baseURL.
func newLoad(s scenario, keys gateway.Keys, gatewayKey, baseURL string) *load {
	l := &load{reasons: make(map[string]int)}
	for i := range max(s.refunds, s.queries) { // alternately
		if i < s.refunds {
			l.calls = append(l.calls, refundCall(i))
		}
		if i < s.queries {
			l.calls = append(l.calls, queryCall(i))
		}
	}

	transport := newTransport(len(l.calls))
	l.close = transport.CloseIdleConnections
	client, err := alipay.New(appID, keys.Private, true,
		alipay.WithProductionGateway(baseURL+gateway.Path),
		alipay.WithHTTPClient(&http.Client{Transport: newStart(len(l.calls), transport)}))
	if err == nil {
		err = client.LoadAliPayPublicKey(gatewayKey)
	}
	if err != nil {
		panic("BUG: demo: keys made here are refused: " + err.Error())
	}
	l.client = client
	return l
}

// run makes all calls and returns when each has ended. l has the results. The error is
// the cause of ctx, if it ended before the calls.
func (l *load) run(ctx context.Context) error {
	defer l.close()
	ctx, cancel := context.WithTimeoutCause(ctx, loadTimeout,
		fmt.Errorf("calls unanswered after %v", loadTimeout))
	defer cancel()

	var wg sync.WaitGroup
	for _, call := range l.calls {
		wg.Go(func() {
			if err := call(ctx, l.client); ctx.Err() == nil {
				l.note(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (l *load) note(err error) {
	l.done.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.reasons[reason(err)]++
		return
	}
	l.succeeded++
}

// String returns the progress of the load.
func (l *load) String() string {
	return fmt.Sprintf("%d of %d calls answered", l.done.Load(), len(l.calls))
}

// refundCall refunds trade i. The trade has only one request number.
func refundCall(i int) func(context.Context, *alipay.Client) error {
	return func(ctx context.Context, c *alipay.Client) error {
		rsp, err := c.TradeRefund(ctx, alipay.TradeRefund{
			OutTradeNo:   fmt.Sprintf("order-%04d", i),
			OutRequestNo: fmt.Sprintf("refund-%04d", i),
			RefundAmount: "9.90",
			RefundReason: "demo",
		})
		if err != nil {
			return err
		}
		return failure(rsp.Error)
	}
}

func queryCall(i int) func(context.Context, *alipay.Client) error {
	return func(ctx context.Context, c *alipay.Client) error {
		rsp, err := c.TradeQuery(ctx, alipay.TradeQuery{OutTradeNo: fmt.Sprintf("order-%04d", i)})
		if err != nil {
			return err
		}
		return failure(rsp.Error)
	}
}

// failure returns the error in an answer, which the SDK does not return as an error.
func failure(e alipay.Error) error {
	if e.Code.IsSuccess() {
		return nil
	}
	return &e
}

// reason returns err without the parts that differ between calls, such as port numbers.
func reason(err error) string {
	if e, ok := errors.AsType[*alipay.Error](err); ok {
		return fmt.Sprintf("%s %s", e.Code, e.SubCode)
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}

// A start holds requests back until all of them are signed, and then sends them at
// once: signing thousands takes the SDK a second or two.
type start struct {
	next    http.RoundTripper
	missing atomic.Int64
	open    chan struct{}
}

func newStart(calls int, next http.RoundTripper) *start {
	s := &start{next: next, open: make(chan struct{})}
	s.missing.Store(int64(calls))
	return s
}

func (s *start) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.missing.Add(-1) == 0 {
		close(s.open)
	}
	select {
	case <-s.open:
		return s.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// newTransport returns a transport for a number of calls in flight, each on its own
// connection. It dials a few at a time: a listener's backlog may be as short as 128.
func newTransport(calls int) *http.Transport {
	var dialer net.Dialer
	dialing := make(chan struct{}, 16)
	return &http.Transport{
		MaxIdleConnsPerHost: calls,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialing <- struct{}{}
			defer func() { <-dialing }()
			return dialer.DialContext(ctx, network, addr)
		},
	}
}
