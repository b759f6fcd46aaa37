package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/smartwalle/alipay/v3"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// start serves a gateway that counts arrivals itself, with front in front of it, and sets
// the merchant's environment.
func start(t *testing.T, front func(w http.ResponseWriter, r *http.Request, g http.Handler)) (*gateway.Gateway, gateway.Keys) {
	t.Helper()
	g, keys, err := platform(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { front(w, r, g) }))
	t.Cleanup(server.Close)
	settings, err := environment(t.TempDir(), server.URL, keys.Private, g.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range settings {
		t.Setenv(name, value)
	}
	return g, keys
}

// refundAll runs the program for n trades and returns its output.
func refundAll(t *testing.T, ctx context.Context, n int) (printed string, err error) {
	t.Helper()
	var list, out strings.Builder
	for i := range n {
		fmt.Fprintf(&list, "T%04d, T%04d-R1, 1.00\n", i, i)
	}
	file := filepath.Join(t.TempDir(), "refunds.csv")
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	err = job{config: "alipay.yaml", refunds: file}.run(ctx, &out)
	return out.String(), err
}

// TestRefunds checks the time stamps: the last refunds wait 3 s, and are signed
// after it. The answers to one refund are lost, and another one is never executed:
// the program reports it, and its second run makes that one only.
func TestRefunds(t *testing.T) {
	beijing := time.FixedZone("Beijing", 8*60*60)
	var mu sync.Mutex
	sent := make(map[string]int) // refunds by trade
	repaired := false
	g, _ := start(t, func(w http.ResponseWriter, r *http.Request, g http.Handler) {
		stamp, err := time.ParseInLocation(time.DateTime, r.FormValue("timestamp"), beijing)
		if age := time.Since(stamp); err != nil || age > 2*time.Second {
			t.Errorf("a request was signed %v before it came: %v", age, err)
		}
		if r.FormValue("method") == gateway.Refund {
			biz := r.FormValue("biz_content")
			trade := biz[strings.Index(biz, `"T`)+1:][:5]
			mu.Lock()
			defer mu.Unlock()
			sent[trade]++
			switch trade {
			case "T0003": // executed, but the answer is lost
				g.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			case "T0005": // refused by a proxy in front of the gateway
				if !repaired {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
			}
		}
		g.ServeHTTP(w, r)
	})
	const refunds = 18 // in windows of 5
	out, err := refundAll(t, t.Context(), refunds)
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "T0005: ") || !strings.HasSuffix(err.Error(), "is unknown; no money was moved, the call is unknown") {
		t.Errorf("run = %v, want the one refund that was never executed", err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, line := range lines {
		if i >= 5 {
			i++
		}
		trade := fmt.Sprintf("T%04d", i)
		if want := trade + ": refunded; books agree, 1.00"; line != want {
			t.Errorf("line %q, want %q", line, want)
		}
	}
	app, method := g.App(appID), g.Method(appID, gateway.Refund)
	if len(lines) != refunds-1 || app.Limited != 0 || app.Most() > 10 || method.Most() > 5 {
		t.Errorf("%d lines; the gateway limited %d calls, at most %d and %d came in a second", len(lines), app.Limited, app.Most(), method.Most())
	}
	made := g.Refunds(appID)
	for trade, n := range made {
		if n != 1 {
			t.Errorf("%s was refunded %d times", trade, n)
		}
	}
	// An unknown refund has two attempts in each round.
	if len(made) != refunds-1 || sent["T0003"] != 2 || sent["T0001"] != 1 || sent["T0005"] != 2*2 {
		t.Errorf("%d trades were refunded; sent: %v", len(made), sent)
	}

	before := maps.Clone(sent)
	before["T0005"]++
	repaired = true
	out, err = refundAll(t, t.Context(), refunds)
	if err != nil || strings.Count(out, "books agree, 1.00") != refunds {
		t.Errorf("the second run: %v\n%s", err, out)
	}
	if made := g.Refunds(appID); len(made) != refunds || made["T0005"] != 1 || !maps.Equal(sent, before) {
		t.Errorf("after the second run %v, sent: %v, want %v", made, sent, before)
	}
}

// TestFailingRefund makes a refund under a number used for another amount.
func TestFailingRefund(t *testing.T) {
	g, keys := start(t, func(w http.ResponseWriter, r *http.Request, g http.Handler) { g.ServeHTTP(w, r) })
	sdk, err := alipay.New(appID, keys.Private, true, alipay.WithProductionGateway(os.Getenv("THROTTLER_UPSTREAMS_ALIPAY_URL")+gateway.Path))
	if err != nil {
		t.Fatal(err)
	}
	if err := sdk.LoadAliPayPublicKey(g.PublicKey); err != nil {
		t.Fatal(err)
	}
	if r, err := sdk.TradeRefund(t.Context(), alipay.TradeRefund{OutTradeNo: "T0001", OutRequestNo: "T0001-R1", RefundAmount: "2.00"}); err != nil || !r.IsSuccess() {
		t.Fatal(r, err)
	}
	out, err := refundAll(t, t.Context(), 2)
	if err == nil || !strings.HasPrefix(err.Error(), "T0001: ") || !strings.HasSuffix(err.Error(), `BOOKS DIFFER: the call is unknown, the platform says "REFUND_SUCCESS" over "2.00"`) {
		t.Errorf("run = %v, want the refund that is unknown, and the other one under its number", err)
	}
	if out != "T0000: refunded; books agree, 1.00\n" {
		t.Errorf("printed %q", out)
	}
}

// TestInterrupted ends the program while a refund waits for its slot. The next run
// makes the remaining refunds, and none twice.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g, _ := start(t, func(w http.ResponseWriter, r *http.Request, g http.Handler) {
		cancel()
		g.ServeHTTP(w, r)
	})
	const refunds = 6 // the last one waits a window
	_, err := refundAll(t, ctx, refunds)
	if err == nil || strings.Count(err.Error(), "\n") != refunds-1 || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("run = %v, want errors of all queries", err)
	}
	if n := len(g.Refunds(appID)); n == refunds {
		t.Errorf("all %d refunds were made before the program ended", n)
	}
	out, err := refundAll(t, t.Context(), refunds)
	if err != nil || strings.Count(out, "refunded; books agree") != refunds {
		t.Errorf("the second run: %v\n%s", err, out)
	}
	for trade, n := range g.Refunds(appID) {
		if n != 1 {
			t.Errorf("%s was refunded %d times", trade, n)
		}
	}
	if n := len(g.Method(appID, gateway.Refund).Arrivals); n != refunds {
		t.Errorf("%d refunds came in, want %d", n, refunds)
	}
}

// TestLocal runs the program as its first user does: without keys, files and an account.
func TestLocal(t *testing.T) {
	settings, err := environment(t.TempDir(), "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	for name := range settings {
		t.Setenv(name, "") // local's values end with the test
	}
	t.Chdir(t.TempDir())
	var out strings.Builder
	if err := local(func(j job) error { return j.run(t.Context(), &out) }, &out); err != nil {
		t.Error(err)
	}
	if strings.Count(out.String(), "refunded; books agree, 1.00\n") != 10 || !strings.Contains(out.String(), "\nthe platform: 10 trades refunded, by 11 requests, at most ") || !strings.HasSuffix(out.String(), "; 0 requests limited\n") {
		t.Errorf("printed:\n%s", out.String())
	}
}

func TestMissingMerchant(t *testing.T) {
	for _, name := range []string{"ALIPAY_APP_ID", "ALIPAY_PRIVATE_KEY_FILE", "ALIPAY_PUBLIC_KEY_FILE"} {
		t.Setenv(name, "")
	}
	_, err := refundAll(t, t.Context(), 1)
	if err == nil || strings.Count(err.Error(), "is not set") != 3 || !strings.Contains(err.Error(), "upstreams.alipay.signer.key: ") {
		t.Errorf("run = %v, want all three names and the missing key", err)
	}
}
