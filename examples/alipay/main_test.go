package main

import (
	"bytes"
	"context"
	"fmt"
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

const appID = "2021000000000001"

// start serves a gateway that counts arrivals by itself, with front before it, and
// puts the merchant's environment in place.
func start(t *testing.T, front func(w http.ResponseWriter, r *http.Request, g http.Handler)) (*gateway.Gateway, gateway.Keys) {
	t.Helper()
	keys := gateway.NewKeys()
	g, err := gateway.New(gateway.Config{
		Apps:         map[string]string{appID: keys.Public},
		AppLimit:     gateway.Limit{Calls: 10, Window: time.Second},
		MethodLimits: map[string]gateway.Limit{gateway.Refund: {Calls: 5, Window: time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		front(w, r, g)
	}))
	t.Cleanup(platform.Close)

	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("ALIPAY_APP_ID", appID)
	private := file("private.pem", keys.Private)
	t.Setenv("ALIPAY_PRIVATE_KEY_FILE", private)
	t.Setenv("THROTTLER_UPSTREAMS_ALIPAY_SIGNER_KEY", "file:"+private)
	t.Setenv("ALIPAY_PUBLIC_KEY_FILE", file("public.pem", g.PublicKey))
	t.Setenv("THROTTLER_UPSTREAMS_ALIPAY_URL", platform.URL)
	return g, keys
}

// TestRefunds looks at the time stamps: the last refunds wait 3 s, and are signed
// then. The answers to one refund are lost, and another one is never executed.
func TestRefunds(t *testing.T) {
	beijing := time.FixedZone("Beijing", 8*60*60)
	var mu sync.Mutex
	sent := make(map[string]int) // refunds by trade
	g, _ := start(t, func(w http.ResponseWriter, r *http.Request, g http.Handler) {
		stamp, err := time.ParseInLocation(time.DateTime, r.FormValue("timestamp"), beijing)
		if age := time.Since(stamp); err != nil || age > 2*time.Second {
			t.Errorf("a request was signed %v before it came: %v", age, err)
		}
		if r.FormValue("method") == gateway.Refund {
			biz := r.FormValue("biz_content")
			trade := biz[strings.Index(biz, `"T`)+1:][:5]
			mu.Lock()
			sent[trade]++
			mu.Unlock()
			switch trade {
			case "T0003": // executed, and the answer is lost
				g.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			case "T0005": // refused by something in front of the gateway
				w.WriteHeader(http.StatusBadGateway)
				return
			}
		}
		g.ServeHTTP(w, r)
	})
	const refunds = 18 // in windows of 5
	var out bytes.Buffer
	err := run(t.Context(), "alipay.yaml", refunds, &out)
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "T0005: ") || !strings.Contains(err.Error(), "is unknown; no money was moved, the call is ") {
		t.Errorf("run = %v, want the one refund that was never executed", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, line := range lines {
		if i >= 5 {
			i++
		}
		trade := fmt.Sprintf("T%04d", i)
		want := trade + ": refunded; books agree, 1.00"
		if trade == "T0003" {
			want = "is unknown; books agree, 1.00"
		}
		if !strings.HasPrefix(line, trade) || !strings.Contains(line, want) {
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
	if len(made) != refunds-1 || sent["T0003"] != 2 || sent["T0001"] != 1 {
		t.Errorf("%d trades were refunded; sent: %v", len(made), sent)
	}
}

// TestFailingRefund has a refund whose number was used for another amount.
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
	var out bytes.Buffer
	err = run(t.Context(), "alipay.yaml", 2, &out)
	if err == nil || !strings.HasPrefix(err.Error(), "T0001: refused, 40004 ") || !strings.HasSuffix(err.Error(), `BOOKS DIFFER: the call is failed, the platform says "REFUND_SUCCESS" over "2.00"`) {
		t.Errorf("run = %v, want the refund that failed, and the other one under its number", err)
	}
	if out.String() != "T0000: refunded; books agree, 1.00\n" {
		t.Errorf("printed %q", out.String())
	}
}

// TestInterrupted ends the program while a refund waits for its slot.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g, _ := start(t, func(w http.ResponseWriter, r *http.Request, g http.Handler) {
		cancel()
		g.ServeHTTP(w, r)
	})
	const refunds = 6 // the last one waits a window
	err := run(ctx, "alipay.yaml", refunds, &bytes.Buffer{})
	if err == nil || strings.Count(err.Error(), "context canceled") != refunds {
		t.Errorf("run = %v, want to hear that nothing could be looked up", err)
	}
	// A refund that was not accepted any more says so, and was not executed.
	if want := refunds - strings.Count(err.Error(), "it was not accepted"); len(g.Refunds(appID)) != want {
		t.Errorf("%d trades were refunded, want the %d that were accepted", len(g.Refunds(appID)), want)
	}
}

func TestMissingMerchant(t *testing.T) {
	for _, name := range []string{"ALIPAY_APP_ID", "ALIPAY_PRIVATE_KEY_FILE", "ALIPAY_PUBLIC_KEY_FILE"} {
		t.Setenv(name, "")
	}
	err := run(t.Context(), "alipay.yaml", 1, &bytes.Buffer{})
	if err == nil || strings.Count(err.Error(), "is not set") != 3 || !strings.Contains(err.Error(), "upstreams.alipay.signer.key: ") {
		t.Errorf("run = %v, want all three names and the missing key", err)
	}
}
