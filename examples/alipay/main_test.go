package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// TestRefunds runs the example against a gateway that counts arrivals by itself,
// and looks at the time stamps: the last refunds wait 3 s, and are signed then.
func TestRefunds(t *testing.T) {
	keys := gateway.NewKeys()
	g, err := gateway.New(gateway.Config{
		Apps:         map[string]string{"2021000000000001": keys.Public},
		AppLimit:     gateway.Limit{Calls: 10, Window: time.Second},
		MethodLimits: map[string]gateway.Limit{gateway.Refund: {Calls: 5, Window: time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	beijing := time.FixedZone("Beijing", 8*60*60)
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stamp, err := time.ParseInLocation(time.DateTime, r.FormValue("timestamp"), beijing)
		if age := time.Since(stamp); err != nil || age > 2*time.Second {
			t.Errorf("a request was signed %v before it came: %v", age, err)
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
	t.Setenv("ALIPAY_APP_ID", "2021000000000001")
	t.Setenv("ALIPAY_PRIVATE_KEY_FILE", file("private.pem", keys.Private))
	t.Setenv("ALIPAY_PUBLIC_KEY_FILE", file("public.pem", g.PublicKey))
	t.Setenv("THROTTLER_UPSTREAMS_ALIPAY_URL", platform.URL)

	const refunds = 18 // in windows of 5
	var out bytes.Buffer
	if err := run(t.Context(), "alipay.yaml", refunds, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, line := range lines {
		if want := fmt.Sprintf("T%04d refunded 1.00: 10000 Success", i); line != want {
			t.Errorf("line %d: %q, want %q", i, line, want)
		}
	}
	app, method := g.App("2021000000000001"), g.Method("2021000000000001", gateway.Refund)
	if len(lines) != refunds || app.Limited != 0 || app.Most() > 10 || method.Most() > 5 || app.Executed != 2*refunds {
		t.Errorf("%d lines; the gateway limited %d calls, at most %d and %d came in a second, %d were executed", len(lines), app.Limited, app.Most(), method.Most(), app.Executed)
	}
	for trade, n := range g.Refunds("2021000000000001") {
		if n != 1 {
			t.Errorf("%s was refunded %d times", trade, n)
		}
	}
}

func TestMissingMerchant(t *testing.T) {
	for _, name := range []string{"ALIPAY_APP_ID", "ALIPAY_PRIVATE_KEY_FILE", "ALIPAY_PUBLIC_KEY_FILE"} {
		t.Setenv(name, "")
	}
	err := run(t.Context(), "alipay.yaml", 1, &bytes.Buffer{})
	if err == nil || strings.Count(err.Error(), "is not set") != 3 {
		t.Errorf("run = %v, want all three names", err)
	}
}
