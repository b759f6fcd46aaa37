package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

const appID = "2021000000000001"

// TestRefunds runs the example against a gateway that counts arrivals by itself,
// and looks at the time stamps: the last refunds wait 3 s, and are signed then. The
// answers to one refund are lost, and another one is never executed.
func TestRefunds(t *testing.T) {
	keys := gateway.NewKeys()
	g, err := gateway.New(gateway.Config{
		Apps:         map[string]string{appID: keys.Public},
		AppLimit:     gateway.Limit{Calls: 10, Window: time.Second},
		MethodLimits: map[string]gateway.Limit{gateway.Refund: {Calls: 5, Window: time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	beijing := time.FixedZone("Beijing", 8*60*60)
	var mu sync.Mutex
	sent := make(map[string]int) // refunds by trade
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stamp, err := time.ParseInLocation(time.DateTime, r.FormValue("timestamp"), beijing)
		if age := time.Since(stamp); err != nil || age > 2*time.Second {
			t.Errorf("a request was signed %v before it came: %v", age, err)
		}
		biz, isRefund := r.FormValue("biz_content"), r.FormValue("method") == gateway.Refund
		if isRefund {
			trade := biz[strings.Index(biz, `"T`)+1:][:5]
			mu.Lock()
			sent[trade]++
			mu.Unlock()
			switch {
			case trade == "T0003": // executed, and the answer is lost
				g.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			case trade == "T0005": // refused by something in front of the gateway
				w.WriteHeader(http.StatusBadGateway)
				return
			}
		}
		g.ServeHTTP(w, r)
	}))
	defer platform.Close()

	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	private := file("private.pem", keys.Private)
	t.Setenv("ALIPAY_APP_ID", appID)
	t.Setenv("ALIPAY_PRIVATE_KEY_FILE", private)
	t.Setenv("ALIPAY_PUBLIC_KEY_FILE", file("public.pem", g.PublicKey))
	t.Setenv("THROTTLER_UPSTREAMS_ALIPAY_SIGNER_KEY", "file:"+private)
	t.Setenv("THROTTLER_UPSTREAMS_ALIPAY_URL", platform.URL)

	const refunds = 18 // in windows of 5
	var out bytes.Buffer
	if err := run(t.Context(), "alipay.yaml", refunds, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, line := range lines {
		trade := fmt.Sprintf("T%04d", i)
		want := trade + ": refunded; books agree, 1.00"
		switch trade {
		case "T0003":
			want = "is unknown; books agree, 1.00"
		case "T0005":
			want = "is unknown; no money was moved, the call is "
		}
		if !strings.HasPrefix(line, trade) || !strings.Contains(line, want) {
			t.Errorf("line %d: %q, want %q", i, line, want)
		}
	}
	app, method := g.App(appID), g.Method(appID, gateway.Refund)
	if len(lines) != refunds || app.Limited != 0 || app.Most() > 10 || method.Most() > 5 {
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

func TestMissingMerchant(t *testing.T) {
	for _, name := range []string{"ALIPAY_APP_ID", "ALIPAY_PRIVATE_KEY_FILE", "ALIPAY_PUBLIC_KEY_FILE"} {
		t.Setenv(name, "")
	}
	err := run(t.Context(), "alipay.yaml", 1, &bytes.Buffer{})
	if err == nil || strings.Count(err.Error(), "is not set") != 3 || !strings.Contains(err.Error(), "upstreams.alipay.signer.key: ") {
		t.Errorf("run = %v, want all three names and the missing key", err)
	}
}
