// Command demo shows Throttler's main job on one machine: a merchant makes some two
// thousand signed refunds and queries at once, first straight at a payment gateway that
// limits them, then through Throttler.
//
//	go run ./cmd/demo -throttler bin/throttler
//
// The gateway is local and counts arrivals itself; the verdict comes from its log. The
// client is an SDK for the real Alipay, and only its base URL differs between the two
// runs. The demo takes about 25 seconds. Its exit code is 0 if, through Throttler, no
// call was limited, no window held more arrivals than its limit, every call succeeded, no
// trade was refunded twice, and the run took at most 1/0.95 of the best time that the
// limits allow; and if the gateway limited most calls that came straight.
//
//	go run ./cmd/demo -gateway 127.0.0.1:8090
//
// serves only the gateway, for calls by hand.
//
//	go run ./cmd/demo -throttler bin/throttler -fleet
//
// shows three replicas over a PostgreSQL of its own, one of which is killed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// appID is the merchant's app at the local gateway.
const appID = "2021000000000001"

// A scenario has the limits of the gateway and the calls that the merchant makes at
// once.
type scenario struct {
	refunds, queries int
	app, refund      gateway.Limit
	latency          time.Duration // of the gateway
}

// The calls of the demo fill 19 windows and a fifth of the next. With whole windows, one
// permit left unused by the first calls (60 queries may come before 40 refunds) would
// cost a window at the end, and the percentage would depend on chance.
var demo = scenario{
	refunds: 960, queries: 960,
	app:     gateway.Limit{Calls: 100, Window: time.Second},
	refund:  gateway.Limit{Calls: 50, Window: time.Second},
	latency: 5 * time.Millisecond,
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	binary := flags.String("throttler", "bin/throttler", "the sidecar's binary, at `path`")
	replicas := flags.Bool("fleet", false, "show three replicas over one database")
	address := flags.String("gateway", "", "serve only the gateway, at `host:port`")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *address != "":
		return serveGateway(ctx, demo, *address, stdout)
	case *replicas:
		return runFleet(ctx, fleetDemo, *binary, stdout)
	}
	return compare(ctx, demo, *binary, stdout)
}

// compare runs the scenario both ways and prints the verdict. The error lists the broken
// promises of the second run.
func compare(ctx context.Context, s scenario, binary string, out io.Writer) error {
	if _, err := os.Stat(binary); err != nil { // before the first run, not after it
		return fmt.Errorf("no sidecar to compare with: %w", err)
	}
	keys := gateway.NewKeys()
	fmt.Fprintf(out, "A gateway allows an app %s.\n", s.limits())
	fmt.Fprintf(out, "A merchant makes %d refunds and %d queries at once, with a real SDK.\n", s.refunds, s.queries)

	fmt.Fprint(out, "\nStraight at the gateway:\n")
	straight, err := s.straight(ctx, keys, out)
	if err != nil {
		return err
	}
	fmt.Fprint(out, "\nThrough Throttler, as this file says:\n\n")
	through, err := s.through(ctx, keys, binary, out)
	if err != nil {
		return err
	}

	fmt.Fprint(out, "\nBy the gateway's own log:\n\n")
	if err := writeVerdict(out, s, straight, through); err != nil {
		return err
	}
	if faults := through.faults(s); len(faults) > 0 {
		fmt.Fprintf(out, "\nThe end of the sidecar's log:\n%s\n", through.log)
		return errors.New("through Throttler:\n  " + strings.Join(faults, "\n  "))
	}
	if err := straight.idle(); err != nil {
		return err
	}
	fmt.Fprint(out, "\nThrough Throttler no call was limited, none was lost, and no limit was ever exceeded.\n")
	return nil
}

// straight runs the scenario against the gateway itself.
func (s scenario) straight(ctx context.Context, keys gateway.Keys, out io.Writer) (report, error) {
	g, srv, err := s.startGateway("", keys)
	if err != nil {
		return report{}, err
	}
	defer srv.Close()
	l := newLoad(s, keys, g.PublicKey, srv.URL)
	stop := newProgress(out).watch(func() string { return l.String() })
	err = l.run(ctx)
	stop()
	return s.report(l, g), err
}

// through runs the scenario against a fresh gateway, with a sidecar in front of it.
func (s scenario) through(ctx context.Context, keys gateway.Keys, binary string, out io.Writer) (_ report, err error) {
	g, srv, err := s.startGateway("", keys)
	if err != nil {
		return report{}, err
	}
	defer srv.Close()
	car, err := startSidecar(ctx, binary, s, srv.URL, out)
	if err != nil {
		return report{}, err
	}
	defer func() { err = errors.Join(err, car.stop()) }()

	l := newLoad(s, keys, g.PublicKey, car.url)
	stop := newProgress(out).watch(func() string { return l.String() + car.status(ctx) })
	err = l.run(ctx)
	stop()
	r := s.report(l, g)
	if len(r.faults(s)) > 0 {
		r.log = car.logTail()
	}
	return r, err
}

// startGateway serves a gateway with fresh counters, at a free port if addr is empty.
func (s scenario) startGateway(addr string, keys gateway.Keys) (*gateway.Gateway, *gateway.Server, error) {
	g, err := gateway.New(gateway.Config{
		Apps:         map[string]string{appID: keys.Public},
		AppLimit:     s.app,
		MethodLimits: map[string]gateway.Limit{gateway.Refund: s.refund},
		Latency:      s.latency,
	})
	if err != nil {
		return nil, nil, err
	}
	srv, err := gateway.Start(addr, g)
	return g, srv, err
}

func (s scenario) limits() string {
	return fmt.Sprintf("%d calls in any %v, and %d refunds in any %v",
		s.app.Calls, s.app.Window, s.refund.Calls, s.refund.Window)
}
