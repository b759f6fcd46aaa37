package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/smartwalle/alipay/v3"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// TestMain makes the test binary a stand-in for the sidecar if the environment has a
// mode.
func TestMain(m *testing.M) {
	if mode := os.Getenv("STAND_IN"); mode != "" {
		standIn(mode, os.Args[len(os.Args)-1])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// standIn takes the config of the demo and misbehaves by mode: open keeps no limit,
// silent never answers, broken does not start. SIGTERM ends it.
func standIn(mode, config string) {
	b, err := os.ReadFile(config)
	if err != nil {
		panic(err)
	}
	if mode == "broken" {
		fmt.Println("the config has a fault")
		os.Exit(1)
	}
	one := func(pattern string) string { return regexp.MustCompile(pattern).FindStringSubmatch(string(b))[1] }
	upstream, err := url.Parse(one(`url: (\S+)`))
	if err != nil {
		panic(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) }}
	serve := func(key string, h http.Handler) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Printf("msg=listening key=%s addr=%s\n", key, l.Addr())
		go http.Serve(l, h)
	}
	serve("upstreams.alipay.listen", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if mode == "silent" {
			<-r.Context().Done()
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	admin := http.NewServeMux()
	admin.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	serve("admin", admin)
	fmt.Println("msg=ready")

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
}

// build builds the sidecar itself.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "throttler")
	if out, err := exec.Command("go", "build", "-o", path, "../throttler").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// withStandIn makes the test binary the sidecar and returns its path. It checks that
// no temporary files are left at the end.
func withStandIn(t *testing.T, mode string) string {
	t.Helper()
	t.Setenv("STAND_IN", mode)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Cleanup(func() {
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// quick is the demo in half a second.
var quick = scenario{
	refunds: 25, queries: 30,
	app:    gateway.Limit{Calls: 10, Window: 100 * time.Millisecond},
	refund: gateway.Limit{Calls: 5, Window: 100 * time.Millisecond},
}

// TestThrough runs the second half of the demo, without a check of its speed.
func TestThrough(t *testing.T) {
	var out strings.Builder
	r, err := quick.through(t.Context(), gateway.NewKeys(), build(t), &out)
	if err != nil {
		t.Fatal(err)
	}
	if r.calls != 55 || r.succeeded != 55 || r.limited() != 0 || r.app.Most() > 10 || r.refund.Most() > 5 || r.refundedTwice != 0 {
		t.Errorf("%d of %d succeeded, %d limited, most %d and %d, %d refunded twice; %v", r.succeeded, r.calls,
			r.limited(), r.app.Most(), r.refund.Most(), r.refundedTwice, r.reasons)
	}
	if len(r.app.Arrivals) != 55 || r.app.Span() < quick.best() {
		t.Errorf("%d arrivals in %v, faster than %v", len(r.app.Arrivals), r.app.Span(), quick.best())
	}
	for _, want := range []string{"window: 100ms}", "preset: alipay", "55 of 55 calls answered, 0 waiting, 0 sending"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := upstream{Waiting: 7, Sending: 2, ETA: time.Now().Add(1500 * time.Millisecond)}
		if got, want := u.String(), ", 7 waiting, 2 sending, the last goes in 1.5s"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestCompare shows the verdict on a sidecar without limits. With a window of an hour
// the numbers are exact.
func TestCompare(t *testing.T) {
	s := quick
	s.app.Window, s.refund.Window = time.Hour, time.Hour
	s.app.Calls = 100 // never reached, so that the limited calls do not depend on the order
	var out strings.Builder
	err := compare(t.Context(), s, withStandIn(t, "open"), &out)
	const want = `through Throttler:
  20 calls were limited by the gateway
  25 refunds arrived in a window, 5 allowed
  35 of 55 calls succeeded
  20 calls failed: 40005 isv.method-call-limited`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	for _, want := range []string{
		"limited by the gateway           20                20\n",
		"The end of the sidecar's log:",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestSidecarThatDoesNotStart(t *testing.T) {
	_, err := quick.through(t.Context(), gateway.NewKeys(), withStandIn(t, "broken"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "  the config has a fault\n") {
		t.Errorf("err = %v", err)
	}
	if err := compare(t.Context(), quick, "no/such/file", io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no binary: %v", err)
	}
}

// TestInterrupt ends a run that waits for answers, at any point. withStandIn checks that
// nothing is left behind.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := quick.through(ctx, gateway.NewKeys(), withStandIn(t, "silent"), io.Discard)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
}

// TestServeGateway makes a call with the printed information alone.
func TestServeGateway(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-gateway", "127.0.0.1:0"}, in, io.Discard)
		in.CloseWithError(err)
		ended <- err
	}()

	printed := make(map[string]string)
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "It ends") {
		label, value, _ := strings.Cut(lines.Text(), "   ")
		printed[label] = strings.TrimSpace(value)
	}
	read := func(label string) string {
		b, err := os.ReadFile(printed[label])
		if err != nil {
			t.Fatalf("%v: %v", printed, err)
		}
		return string(b)
	}
	c, err := alipay.New(appID, read("sign with"), true, alipay.WithProductionGateway(printed["gateway"]))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.LoadAliPayPublicKey(read("verify with")); err != nil {
		t.Fatal(err)
	}
	if rsp, err := c.TradeQuery(t.Context(), alipay.TradeQuery{OutTradeNo: "t1"}); err != nil || rsp.Code != "10000" {
		t.Errorf("%+v, %v", rsp, err)
	}

	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-h"}, ""},
		{[]string{"more"}, `unexpected argument "more"`},
		{[]string{"-x"}, "flag provided but not defined: -x"},
	} {
		got := ""
		if err := run(t.Context(), tt.args, io.Discard, io.Discard); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%v: %q, want %q", tt.args, got, tt.want)
		}
	}
}

// TestTerminal shows the line of progress in place.
func TestTerminal(t *testing.T) {
	var out strings.Builder
	stop := progress{&out, time.Hour, true}.watch(func() string { return "all done" })
	stop()
	if got, want := out.String(), "\r\x1b[K  all done\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
