package sdk

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

var binary string // path of the real binary

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "throttler-sdk")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "throttler")
	build := exec.Command("go", "build", "-o", binary, "./cmd/throttler")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the sidecar: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
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

// sidecar runs the binary in front of a platform, with a preset and further lines
// of the upstream, and returns the URL of its data listener.
func sidecar(t *testing.T, preset, upstream string, lines ...string) string {
	t.Helper()
	return sidecarAt(t, "listen", preset, upstream, lines...)
}

// sidecarAt is sidecar for the listener of another key of the upstream.
func sidecarAt(t *testing.T, key, preset, upstream string, lines ...string) string {
	t.Helper()
	listening := regexp.MustCompile(`msg=listening key=` + regexp.QuoteMeta("upstreams.pay."+key) + ` addr=(\S+)`)
	yaml := fmt.Sprintf("admin: 127.0.0.1:0\nstore: memory\nupstreams:\n  pay:\n    listen: 127.0.0.1:0\n    url: %s\n    preset: %s\n", upstream, preset)
	for _, line := range lines {
		yaml += "    " + line + "\n"
	}
	file := filepath.Join(t.TempDir(), "throttler.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &lockedBuffer{}
	cmd := exec.Command(binary, "serve", "-c", file)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-done
		if t.Failed() {
			t.Logf("log of the sidecar:\n%s", log)
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; {
		if strings.Contains(log.String(), "msg=ready") {
			return "http://" + listening.FindStringSubmatch(log.String())[1]
		}
		select {
		case <-done:
			t.Fatalf("the sidecar ended:\n%s", log)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the sidecar never was ready:\n%s", log)
		}
	}
}

// A platform is the gateway of a test, of any kind.
type platform interface {
	http.Handler
	Arrivals(route string) int
	Refunds() map[string]int
}

// gatewayForm gives the counts of Alipay's gateway.do as the other platforms do.
type gatewayForm struct{ *gateway.Gateway }

const appID = "2021000000000001"

func (g gatewayForm) Arrivals(route string) int {
	return len(g.Method(appID, map[string]string{"refund": gateway.Refund, "query": gateway.RefundQuery}[route]).Arrivals)
}

func (g gatewayForm) Refunds() map[string]int { return g.Gateway.Refunds(appID) }

// newPlatform returns a platform and its public key.
func newPlatform(t *testing.T, preset string, client gateway.Keys, fault func(string, int) gateway.Fault) (platform, string) {
	t.Helper()
	if preset == "alipay" {
		g, err := gateway.New(gateway.Config{Apps: map[string]string{appID: client.Public}, Fault: fault})
		if err != nil {
			t.Fatal(err)
		}
		return gatewayForm{g}, g.PublicKey
	}
	p, err := gateway.NewREST(gateway.RESTConfig{Kind: gateway.Kind(preset), Client: client.Public, Fault: fault})
	if err != nil {
		t.Fatal(err)
	}
	return p, p.PublicKey
}

// A client is an SDK that makes a refund with number R1 through a base URL. It
// returns the error code that its user gets, "" for success.
type client struct {
	name, preset string
	// make returns the refund for a base URL, the caller's keys and the platform's public one.
	make func(t *testing.T, url string, keys gateway.Keys, public string) func() (code string)
	// Texts of the user's error code; one of them suffices.
	limited, refused, down, unknown, lost []string
	// Attempts by the SDK itself if the platform answers 5xx; 0 is one.
	tries int
}

// counting is a proxy between an SDK and the sidecar that counts the SDK's requests.
func counting(t *testing.T, sidecar string) (*atomic.Int64, string) {
	t.Helper()
	to, err := url.Parse(sidecar)
	if err != nil {
		t.Fatal(err)
	}
	n := new(atomic.Int64)
	proxy := httputil.NewSingleHostReverseProxy(to)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return n, srv.URL
}

// once gives the fault to the first call only.
func once(f gateway.Fault) func(string, int) gateway.Fault {
	return func(_ string, n int) gateway.Fault {
		if n == 1 {
			return f
		}
		return gateway.Fault{}
	}
}

func always(f gateway.Fault) func(string, int) gateway.Fault {
	return func(string, int) gateway.Fault { return f }
}

func (c client) test(t *testing.T) {
	const unrepeated = "retry: {attempts: 1}"
	hang := []string{"timeout: 400ms", unrepeated}
	type scenario struct {
		name     string
		fault    func(string, int) gateway.Fault
		lines    []string
		calls    int      // refunds made, one after the other
		want     []string // the user's error code of the last
		arrivals int      // exact number
		refunds  int      // executed
		sent     int      // requests of the SDK; 0: as many as calls
		down     bool     // there is no platform
	}
	tries := max(c.tries, 1)
	signed := c.preset == "alipay-v3" || c.preset == "wechatpay-v3" // with a nonce: must not be sent twice
	limited := scenario{"limited, sent again", once(gateway.Fault{Answer: gateway.AppLimited}), nil, 1, nil, 2, 1, 0, false}
	if signed {
		limited = scenario{"limited, its answer passed on", once(gateway.Fault{Answer: gateway.AppLimited}), nil, 1, c.limited, 1, 0, 0, false}
	}
	same := 1 // refunds of two calls with one number
	if c.preset == "stripe" {
		same = 2 // each call has a key of its own
	}
	scenarios := []scenario{
		{name: "success", calls: 1, arrivals: 1, refunds: 1},
		limited,
		{name: "down", calls: 1, want: c.down, down: true},
		{"the same refund again", nil, nil, 2, nil, same, same, 0, false},
		{"refused by us", nil, []string{"max_wait: 100ms", "limits: [{name: one, calls: 1, window: 1h}]", `identity: ""`}, 2, c.refused, 1, 1, 0, false},
		{"unknown, executed", always(gateway.Fault{Answer: gateway.UnknownError, Executed: true}), []string{unrepeated}, 1, c.unknown, tries, 1, tries, false},
		{"unknown, not executed", always(gateway.Fault{Answer: gateway.SystemError}), []string{unrepeated}, 1, c.unknown, tries, 0, tries, false},
		{"hang", always(gateway.Fault{Answer: gateway.Hang, Executed: true}), hang, 1, c.lost, 1, 1, 0, false},
		{"reset after", always(gateway.Fault{Answer: gateway.Reset, Executed: true}), []string{unrepeated}, 1, c.lost, 1, 1, 0, false},
		{"reset before", always(gateway.Fault{Answer: gateway.Reset}), []string{unrepeated}, 1, c.lost, 1, 0, 0, false},
		{"closed", always(gateway.Fault{Answer: gateway.Cut}), []string{unrepeated}, 1, c.lost, 1, 0, 0, false},
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			keys := gateway.NewKeys()
			p, public := newPlatform(t, c.preset, keys, s.fault)
			srv, err := gateway.Start("", p)
			if err != nil {
				t.Fatal(err)
			}
			defer srv.Close()
			upstream := srv.URL
			if s.down {
				upstream = "http://127.0.0.1:1"
			}
			tries, counted := counting(t, sidecar(t, c.preset, upstream, s.lines...))
			refund := c.make(t, counted, keys, public)
			var got string
			for range s.calls {
				got = refund()
			}
			ok := len(s.want) == 0 && got == ""
			for _, want := range s.want {
				ok = ok || got != "" && strings.Contains(got, want)
			}
			moved := 0
			for _, n := range p.Refunds() {
				moved += n
			}
			if !ok || p.Arrivals("refund") != s.arrivals || moved != s.refunds {
				t.Errorf("the user sees %q, want %q; %d requests came in and %d refunds were made, want %d and %d", got, s.want, p.Arrivals("refund"), moved, s.arrivals, s.refunds)
			}
			if n := tries.Load(); n != int64(max(s.calls, s.sent)) {
				t.Errorf("the SDK sent %d requests, want %d", n, max(s.calls, s.sent))
			}
			t.Logf("the user sees %q", got)
		})
	}
}
