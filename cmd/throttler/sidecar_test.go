package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/smartwalle/alipay/v3"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// binary builds the sidecar once and returns its path.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(tempDir, "throttler")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// A process is a running sidecar: the real binary.
type process struct {
	cmd         *exec.Cmd
	data, admin string // base URLs
	file        string // its configuration
	log         *lockedBuffer
	done        chan struct{} // closed when it has ended
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs the sidecar in front of an upstream. The lines are YAML of the upstream, its
// limits for instance.
func start(t *testing.T, upstream string, lines ...string) *process {
	t.Helper()
	yaml := ""
	for _, line := range lines {
		yaml += "    " + line + "\n"
	}
	return launch(t, oneUpstream("memory", "alipay", upstream, yaml))
}

// oneUpstream returns a configuration with one upstream. The lines are YAML of the upstream, with
// their indentation.
func oneUpstream(store, name, url, lines string) string {
	return fmt.Sprintf("admin: 127.0.0.1:0\nstore: %s\nupstreams:\n  %s:\n    listen: 127.0.0.1:0\n    url: %s\n%s", store, name, url, lines)
}

// launch runs the sidecar with a configuration, until it is ready. A prefix is a command that executes it.
func launch(t *testing.T, yaml string, prefix ...string) *process {
	t.Helper()
	p := begin(t, yaml, prefix...)
	p.logs(t, "msg=ready")
	p.admin, p.data = cmp.Or(listening(p.log.String(), "admin"), listening(p.log.String(), "admin[0]")), listening(p.log.String(), "upstreams.alipay.listen")
	return p
}

// begin starts the sidecar, which ends with the test.
func begin(t *testing.T, yaml string, prefix ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "throttler.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{file: file, log: &lockedBuffer{}, done: make(chan struct{})}
	command := append(prefix, path, "serve", "--watch", "-c", file)
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("log of the sidecar:\n%s", p.log)
		}
	})
	return p
}

// url returns the URL of the listener of a configuration key, by the log.
func (p *process) url(t *testing.T, key string) string {
	t.Helper()
	url := listening(p.log.String(), key)
	if url == "" {
		t.Fatalf("the log has no listener of %s", key)
	}
	return url
}

// listening returns the URL of the listener of a key, by a log; empty if it is not there.
func listening(log, key string) string {
	line := regexp.MustCompile(`msg=listening key=` + regexp.QuoteMeta(key) + ` addr=(\S+)`).FindStringSubmatch(log)
	if line == nil {
		return ""
	}
	return "http://" + line[1]
}

// until waits for a condition, at most until the process ends.
func (p *process) until(t *testing.T, state string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for pause := 5 * time.Millisecond; !ok(); pause = min(2*pause, 40*time.Millisecond) {
		select {
		case <-p.done:
			t.Fatalf("the sidecar ended before it was %s", state)
		case <-deadline:
			t.Fatalf("the sidecar never was %s", state)
		case <-time.After(pause):
		}
	}
}

// logs waits for a text in the log, which comes by a pipe: an answer may come before its line.
func (p *process) logs(t *testing.T, text string) {
	t.Helper()
	p.until(t, "logging "+text, func() bool { return strings.Contains(p.log.String(), text) })
}

// body returns the body of a response of the admin API.
func (p *process) body(path string) string {
	resp, err := http.Get(p.admin + path)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

// call returns a call as the admin API has it, the zero Call if it has none.
func (p *process) call(id string) (call api.Call) {
	json.Unmarshal([]byte(p.body("/v1/calls/"+id)), &call)
	return call
}

// exit waits for the end and returns the exit code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		t.Fatal("the sidecar does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill9 ends the sidecar by kill -9.
func (p *process) kill9() {
	p.cmd.Process.Kill()
	<-p.done
}

const appID = "2021000000000001"

// serve serves a gateway until the test ends, and returns its URL.
func serve(t *testing.T, g http.Handler) (url string) {
	platform, err := gateway.Start("", g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { platform.Close() })
	return platform.URL
}

// keyFile writes the private key to a file, as a signer reads it.
func keyFile(t *testing.T, keys gateway.Keys) (path string) {
	path = filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, []byte(keys.Private), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSDKThroughTheSidecar sends 300 refunds and 200 queries of one app at once,
// with an SDK that verifies every answer, to a gateway that verifies every
// request and counts arrivals by itself.
func TestSDKThroughTheSidecar(t *testing.T) {
	const refunds, queries = 300, 200
	keys := gateway.NewKeys()
	g, err := gateway.New(gateway.Config{
		Apps: map[string]string{appID: keys.Public},
		MethodLimits: map[string]gateway.Limit{
			gateway.Refund: {Calls: 50, Window: time.Second},
			gateway.Query:  {Calls: 100, Window: time.Second},
		},
		Latency: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, serve(t, g),
		"preset: alipay",
		"max_wait: 60s",
		"limits:",
		`  - {name: refund, when: 'param("method") == "alipay.trade.refund"', per_key: 'param("app_id")', calls: 50, window: 1s}`,
		`  - {name: query, when: 'param("method") == "alipay.trade.query"', per_key: 'param("app_id")', calls: 100, window: 1s}`,
	)
	sdk, err := alipay.New(appID, keys.Private, true, alipay.WithProductionGateway(p.data+gateway.Path),
		alipay.WithHTTPClient(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: refunds + queries}}))
	if err != nil {
		t.Fatal(err)
	}
	if err := sdk.LoadAliPayPublicKey(g.PublicKey); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range refunds {
		wg.Go(func() {
			trade := fmt.Sprintf("T%d", i)
			r, err := sdk.TradeRefund(t.Context(), alipay.TradeRefund{OutTradeNo: trade, OutRequestNo: trade, RefundAmount: "1.00"})
			if err != nil || !r.IsSuccess() {
				t.Errorf("refund of %s: %+v, %v", trade, r, err)
			}
		})
	}
	for i := range queries {
		wg.Go(func() {
			r, err := sdk.TradeQuery(t.Context(), alipay.TradeQuery{OutTradeNo: fmt.Sprintf("T%d", i)})
			if err != nil || !r.IsSuccess() {
				t.Errorf("query %d: %+v, %v", i, r, err)
			}
		})
	}
	wg.Wait()
	for method, want := range map[string]int{gateway.Refund: refunds, gateway.Query: queries} {
		tally := g.Method(appID, method)
		if tally.Executed != want || len(tally.Arrivals) != want || tally.Limited != 0 || tally.Most() > tally.Limit.Calls {
			t.Errorf("%s: %d arrivals, %d executed, %d limited, at most %d in a second; want %d, %d, 0, at most %d",
				method, len(tally.Arrivals), tally.Executed, tally.Limited, tally.Most(), want, want, tally.Limit.Calls)
		}
	}
	twice := 0
	for _, n := range g.Refunds(appID) {
		if n != 1 {
			twice++
		}
	}
	if n := len(g.Refunds(appID)); n != refunds || twice != 0 {
		t.Errorf("%d trades were refunded, %d of them not once", n, twice)
	}
	if metrics := p.body("/metrics"); !strings.Contains(metrics, `throttler_calls_ended_total{state="done",upstream="alipay"} 500`) {
		t.Error("the metrics do not count 500 calls done")
	}
}

// stall returns the URL of an upstream that reports each request, and answers when answer
// is closed.
func stall(t *testing.T) (url string, arrived chan struct{}, answer chan struct{}) {
	t.Helper()
	arrived, answer = make(chan struct{}, 10), make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case arrived <- struct{}{}:
		default: // the test does not count so many
		}
		select {
		case <-answer:
			io.WriteString(w, "answer")
		case <-r.Context().Done():
		}
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(l)
	}()
	t.Cleanup(func() { srv.Close(); <-done })
	return "http://" + l.Addr().String(), arrived, answer
}

type got struct {
	status int
	body   string
	err    error
}

func get(ctx context.Context, url string) chan got {
	ch := make(chan got, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			ch <- got{err: err}
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		ch <- got{resp.StatusCode, string(b), err}
	}()
	return ch
}

// TestWebPagesDoNotReachTheUpstream: a data listener is for programs, by the names of the
// configuration.
func TestWebPagesDoNotReachTheUpstream(t *testing.T) {
	arrived := make(chan string, 10)
	p := start(t, serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived <- r.URL.Path })), "hosts: [Payments.internal]")
	for path, tt := range map[string]struct {
		host, name, value string
		status            int
	}{
		"/program": {"payments.internal:8081", "", "", 200},
		"/page":    {"", "Sec-Fetch-Site", "cross-site", 403},
		"/rebound": {"evil.example:8081", "Sec-Fetch-Site", "same-origin", 403},
	} {
		req, err := http.NewRequest("POST", p.data+path, strings.NewReader("method=alipay.fund.trans.uni.transfer"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = tt.host
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if tt.name != "" {
			req.Header.Set(tt.name, tt.value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d", path, resp.StatusCode, tt.status)
		}
	}
	if len(arrived) != 1 || <-arrived != "/program" {
		t.Error("another request than the program's arrived")
	}
}

func TestGracefulStop(t *testing.T) {
	url, arrived, answer := stall(t)
	p := start(t, url, "limits:", "  - {name: one, concurrency: 1}")
	flying := get(t.Context(), p.data+"/flying")
	<-arrived
	waiting := get(t.Context(), p.data+"/waiting")
	p.until(t, "holding a call", func() bool { return strings.Contains(p.body("/v1/upstreams"), `"waiting":1`) })

	p.cmd.Process.Signal(syscall.SIGTERM)
	if w := <-waiting; w.status != 503 || !strings.Contains(w.body, `"reason":"stopping"`) {
		t.Errorf("the client that waited got %+v, want a refusal", w)
	}
	if r := <-get(t.Context(), p.admin+"/readyz"); r.status != 503 {
		t.Errorf("readyz while stopping: %+v, want 503", r)
	}
	if n := <-get(t.Context(), p.data+"/new"); n.status != 503 {
		t.Errorf("a new call while stopping: %+v, want 503", n)
	}
	close(answer)
	if f := <-flying; f.status != 200 || f.body != "answer" {
		t.Errorf("the call in flight got %+v, want its answer", f)
	}
	if code := p.exit(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if len(arrived) != 0 {
		t.Error("the waiting call was sent")
	}
	if want := `grace=35s in_flight=1 waiting=1`; !strings.Contains(p.log.String(), want) {
		t.Errorf("no %s in the log", want)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	url, arrived, _ := stall(t)
	p := start(t, url)
	flying := get(t.Context(), p.data+"/")
	<-arrived
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.until(t, "stopping", func() bool { return strings.Contains(p.body("/readyz"), "stopping") })
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.exit(t); code != -1 {
		t.Errorf("exit code %d after a hard stop, want an end by the signal", code)
	}
	if want := `msg="a second signal ends the process at once: the outcome of calls in flight is unknown" signal=terminated in_flight=1 waiting=0`; !strings.Contains(p.log.String(), want) {
		t.Errorf("no %s in the log", want)
	}
	if f := <-flying; f.err == nil {
		t.Errorf("the call in flight got %+v", f)
	}
}

func TestGracePeriodIsBounded(t *testing.T) {
	url, arrived, _ := stall(t)
	t.Setenv("THROTTLER_GRACE", "200ms")
	p := start(t, url)
	flying := get(t.Context(), p.data+"/")
	<-arrived
	p.cmd.Process.Signal(syscall.SIGTERM)
	if f := <-flying; f.status != 504 || !strings.Contains(f.body, `"outcome":"unknown"`) {
		t.Errorf("the call that was cut off got %+v, want 504, unknown", f)
	}
	if code := p.exit(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestAddressesInUse: each address that is in use is named on a line of its own, by serve
// and by check --ports.
func TestAddressesInUse(t *testing.T) {
	var taken [2]string
	for i := range taken {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		taken[i] = l.Addr().String()
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "t.yaml")
	os.WriteFile(file, fmt.Appendf(nil, "admin: %s\nstore: memory\nupstreams: {pay: {url: 'http://127.0.0.1:1', listen: '%s'}}\n", taken[0], taken[1]), 0o600)
	faults := []string{
		file + ":1: admin: cannot listen on " + taken[0] + ": bind: address already in use; free the address or choose another one",
		file + ":3: upstreams.pay.listen: cannot listen on " + taken[1] + ": bind: address already in use; free the address or choose another one",
	}
	for _, command := range [][]string{{"serve"}, {"check", "--ports"}} {
		out, err := exec.Command(path, append(command, "-c", file)...).CombinedOutput()
		var exit *exec.ExitError
		if want := map[string]int{"serve": exitFailed, "check": exitConfig}; !errors.As(err, &exit) || exit.ExitCode() != want[command[0]] {
			t.Errorf("%v: %v", command, err)
		}
		for _, want := range faults {
			if !strings.Contains(string(out), " "+want+"\n") {
				t.Errorf("%v: no line %q in\n%s", command, want, out)
			}
		}
	}
	if out, err := exec.Command(path, "check", "-c", file).CombinedOutput(); err != nil {
		t.Errorf("check without --ports: %v\n%s", err, out)
	}
}
