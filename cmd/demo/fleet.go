package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
	"github.com/seed-30fe103d/throttler/internal/pgtest"
)

// fleetYAML is the configuration of a replica: database, name, gateway URL, key file, and the limits.
const fleetYAML = `admin: 127.0.0.1:0
store: %s
fleet: {listen: 127.0.0.1:0, name: %s, lease: 1s}
upstreams:
  alipay:
    listen: 127.0.0.1:0
    url: %s
    preset: alipay
    signer: {kind: alipay, key: 'file:%s'}
    timeout: 1s
    late: 500ms
    limits:
      - {name: app,    per_key: 'param("app_id")', calls: %d, window: %v}
      - {name: refund, when: 'param("method") == "alipay.trade.refund"', per_key: 'param("app_id")', calls: %d, window: %v}
`

// fleetDemo has fewer calls than demo: the wait after the kill is in its time.
var fleetDemo = scenario{
	refunds: 300, queries: 300,
	app:     gateway.Limit{Calls: 50, Window: time.Second},
	refund:  gateway.Limit{Calls: 25, Window: time.Second},
	latency: 5 * time.Millisecond,
}

// fleetTimeout ends a run that would hang.
const fleetTimeout = 2 * time.Minute

// A fleet is three replicas over one database, and the ends of the calls that were submitted to them.
type fleet struct {
	binary, dir string
	configs     []string
	replicas    []*sidecar

	mu     sync.Mutex
	calls  map[string]string // ids by idempotency key
	states map[string]int
	killed time.Duration // from the kill of the owner to the next one
}

// runFleet submits the calls of a scenario to three replicas, each call at one of them, kills the one that has
// the calls, and prints the counts of the gateway.
func runFleet(ctx context.Context, s scenario, binary string, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fleetTimeout, fmt.Errorf("the calls have not ended within %v", fleetTimeout))
	defer cancel()
	server, err := pgtest.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	database, err := server.NewDatabase()
	if err != nil {
		return err
	}
	keys := gateway.NewKeys()
	g, srv, err := s.startGateway("", keys)
	if err != nil {
		return err
	}
	defer srv.Close()
	f := &fleet{binary: binary, calls: make(map[string]string), states: make(map[string]int)}
	if f.dir, err = os.MkdirTemp("", "throttler-demo-"); err != nil {
		return err
	}
	defer os.RemoveAll(f.dir)
	key := filepath.Join(f.dir, "app.pem")
	if err := os.WriteFile(key, []byte(keys.Private), 0o600); err != nil {
		return err
	}
	for _, name := range []string{"a", "b", "c"} {
		f.configs = append(f.configs, fmt.Sprintf(fleetYAML, database, name, srv.URL, key, s.app.Calls, s.app.Window, s.refund.Calls, s.refund.Window))
	}
	fmt.Fprintf(out, "A gateway allows an app %s. Three replicas serve from one PostgreSQL, each as this file says:\n\n%s\n", s.limits(), indent(f.configs[0]))
	defer f.stop()
	if err := f.start(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d refunds and %d queries are submitted at once, a third at each replica. While they are sent, the one that has them is killed.\n", s.refunds, s.queries)
	if err := f.play(ctx, s, out); err != nil {
		return err
	}
	return f.verdict(s, g, out)
}

// start starts the replicas.
func (f *fleet) start(ctx context.Context) error {
	for i := range f.configs {
		r, err := f.launch(ctx, i)
		if err != nil {
			return err
		}
		f.replicas = append(f.replicas, r)
	}
	return nil
}

// launch starts a replica, and returns when it listens.
func (f *fleet) launch(ctx context.Context, i int) (*sidecar, error) {
	dir, err := os.MkdirTemp(f.dir, "replica")
	if err != nil {
		return nil, err
	}
	c := &sidecar{dir: dir, exited: make(chan struct{})}
	if err := c.start(f.binary, f.configs[i]); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if c.readAddresses() {
			if body, err := c.get(ctx, "/v1/fleet"); err == nil {
				body.Close()
				return c, nil
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-c.exited:
			return nil, fmt.Errorf("a replica ended at once (%v); its log:\n%s", c.cmd.ProcessState, c.logTail())
		case <-ctx.Done():
			return nil, fmt.Errorf("a replica is not ready: %w; its log:\n%s", ctx.Err(), c.logTail())
		}
	}
}

func (f *fleet) stop() {
	for _, r := range f.replicas {
		r.cmd.Process.Kill()
		<-r.exited
	}
}

// play submits the calls, kills the owner, starts it again, and waits until all calls have ended.
func (f *fleet) play(ctx context.Context, s scenario, out io.Writer) error {
	if err := f.submitAll(ctx, s); err != nil {
		return err
	}
	progress := newProgress(out).watch(func() string { return f.String(ctx, s.refunds+s.queries) })
	defer progress()
	select {
	case <-time.After(3 * s.app.Window):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	owner, err := f.owner(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	f.replicas[owner].cmd.Process.Kill()
	<-f.replicas[owner].exited
	for next := owner; next == owner; {
		if next, err = f.owner(ctx); err != nil {
			return err
		}
	}
	f.killed = time.Since(begun)
	again, err := f.launch(ctx, owner)
	if err != nil {
		return err
	}
	f.replicas[owner] = again
	return f.wait(ctx)
}

// owner returns the replica that has the calls.
func (f *fleet) owner(ctx context.Context) (int, error) {
	for {
		for i, r := range f.replicas {
			var view struct{ Replicas []struct{ Self, Owner bool } }
			select {
			case <-r.exited:
				continue
			default:
			}
			if r.read(ctx, "/v1/fleet", &view) == nil && slices.Contains(view.Replicas, struct{ Self, Owner bool }{true, true}) {
				return i, nil
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return 0, fmt.Errorf("no replica has the calls: %w", context.Cause(ctx))
		}
	}
}

// submitAll submits the calls of a scenario, a third at each replica.
func (f *fleet) submitAll(ctx context.Context, s scenario) error {
	var wg sync.WaitGroup
	faults := make(chan error, s.refunds+s.queries)
	places := make(chan struct{}, 32)
	for n := range s.refunds + s.queries {
		method, number := gateway.Refund, n/2
		if n%2 == 1 {
			method = gateway.Query
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			faults <- f.submit(ctx, f.replicas[n%len(f.replicas)], method, number)
		})
	}
	wg.Wait()
	close(faults)
	for err := range faults {
		if err != nil {
			return err
		}
	}
	return nil
}

// submit submits a call about an order, under an idempotency key.
func (f *fleet) submit(ctx context.Context, r *sidecar, method string, number int) error {
	content := fmt.Sprintf(`{"out_trade_no":"order-%04d","out_request_no":"refund-%04d","refund_amount":"9.90"}`, number, number)
	form := url.Values{"app_id": {appID}, "method": {method}, "charset": {"utf-8"}, "sign_type": {"RSA2"}, "version": {"1.0"}, "biz_content": {content}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+gateway.Path, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	key := fmt.Sprint(method, " ", number)
	req.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded;charset=utf-8"}, "Prefer": {"respond-async"}, "Idempotency-Key": {key}}
	rsp, err := adminClient.Do(req)
	if err != nil {
		return err
	}
	defer rsp.Body.Close()
	var call struct{ ID string }
	text, err := io.ReadAll(rsp.Body)
	if err != nil || rsp.StatusCode != http.StatusAccepted || json.Unmarshal(text, &call) != nil {
		return fmt.Errorf("%s was not accepted: %s: %s", key, rsp.Status, text)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[key] = call.ID
	return nil
}

// wait waits until all calls have ended, and counts their states.
func (f *fleet) wait(ctx context.Context) error {
	for key, id := range f.calls {
		var call struct{ State string }
		for call.State == "" || call.State == "waiting" || call.State == "sending" {
			for _, r := range f.replicas { // each of them can be asked
				r.read(ctx, "/v1/calls/"+id, &call)
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s is %q: %w", key, call.State, context.Cause(ctx))
			}
			if call.State == "waiting" {
				time.Sleep(50 * time.Millisecond)
			}
		}
		f.mu.Lock()
		f.states[call.State]++
		f.mu.Unlock()
	}
	return nil
}

// String returns the progress.
func (f *fleet) String(ctx context.Context, of int) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, r := range f.replicas {
		if text := r.status(ctx); text != "" {
			return fmt.Sprintf("%d calls submitted%s", of, text)
		}
	}
	return "no replica answers"
}

// read reads a page of a replica's admin API.
func (c *sidecar) read(ctx context.Context, path string, to any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := c.get(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(body).Decode(to)
}

// verdict prints the ends of the calls, by the gateway's own log, and returns the broken promises.
func (f *fleet) verdict(s scenario, g *gateway.Gateway, out io.Writer) error {
	app, refund := g.App(appID), g.Method(appID, gateway.Refund)
	twice := 0
	for _, n := range g.Refunds(appID) {
		if n > 1 {
			twice++
		}
	}
	limited := app.Limited + refund.Limited
	fmt.Fprint(out, "\nBy the gateway's own log:\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range []struct {
		label string
		value any
	}{
		{"calls submitted", len(f.calls)}, {"done", f.states["done"]}, {"unknown, and told so", f.states["unknown"]}, {"lost", len(f.calls) - f.states["done"] - f.states["unknown"]},
		{"limited by the gateway", limited},
		{fmt.Sprintf("most arrivals in any %v", s.app.Window), fmt.Sprintf("%d of %d", app.Most(), s.app.Calls)},
		{fmt.Sprintf("most refunds in any %v", s.refund.Window), fmt.Sprintf("%d of %d", refund.Most(), s.refund.Calls)},
		{"trades refunded twice", twice},
		{"kill -9 of the owner to the next one", f.killed.Round(10 * time.Millisecond)},
		{"first to last arrival", app.Span().Round(10 * time.Millisecond)},
		{"best possible time", s.best()},
	} {
		fmt.Fprintf(w, "  %s\t%v\n", row.label, row.value)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if lost := len(f.calls) - f.states["done"] - f.states["unknown"]; lost > 0 || limited > 0 || twice > 0 || app.Most() > s.app.Calls || refund.Most() > s.refund.Calls || len(f.calls) != s.refunds+s.queries {
		return fmt.Errorf("a promise was broken: states %v", f.states)
	}
	fmt.Fprint(out, "\nA replica died, and no call was lost, none was limited, and no trade was refunded twice.\n")
	return nil
}
