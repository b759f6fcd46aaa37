package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
)

// TestBrowser logs in at the running sidecar, without and with TLS, and keeps its session over a
// reload that leaves its token, and no longer.
func TestBrowser(t *testing.T) {
	ca := newIssuer(t)
	ca.issue(t, "server", time.Hour)
	for scheme, lines := range map[string]string{
		"http":  "",
		"https": fmt.Sprintf("  tls: {cert: %s/server.pem, key: 'file:%s/server.key'}\n", ca.dir, ca.dir),
	} {
		t.Run(scheme, func(t *testing.T) {
			yaml := func(tokens, ui string) string {
				return "admin: 127.0.0.1:0\naccess:\n" + tokens + lines + ui + accessRest
			}
			p := launch(t, yaml(tokenLines(), "ui: {name: PROD pay}\n"))
			addr := without(p.admin)
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			browser := dialer(addr)
			browser.Jar = jar
			base := scheme + "://" + addr
			page := func(resp *http.Response, err error) string {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return resp.Request.URL.RequestURI() + " " + string(text)
			}
			reload := func(yaml string) {
				t.Helper()
				if err := os.WriteFile(p.file, []byte(yaml), 0o600); err != nil {
					t.Fatal(err)
				}
				if status, body := (adminCaller{base, tokenFor(access.Admin), dialer(addr)}).ask(t, "POST", "/v1/config/reload", ""); status != 200 {
					t.Fatalf("reload: %d %s", status, body)
				}
			}
			if got := page(browser.Get(base)); !strings.HasPrefix(got, "/ui/login?next=%2Fui%2F ") {
				t.Errorf("a stranger comes to %.100s", got)
			}
			got := page(browser.PostForm(base+"/ui/login", url.Values{"token": {tokenFor(access.Operator)}, "next": {"/ui/limits"}}))
			if !strings.HasPrefix(got, "/ui/limits ") || !strings.Contains(got, "t-operator") || !strings.Contains(got, ">PROD pay</span>") || !strings.Contains(got, "/ui/pause?upstream=alipay") {
				t.Errorf("after the login: %s", got)
			}
			reload(yaml(tokenLines(), "ui: {name: test, actions: false}\n"))
			if got := page(browser.Get(base + "/ui/limits")); !strings.Contains(got, "t-operator") || !strings.Contains(got, ">test</span>") || strings.Contains(got, "/ui/pause") {
				t.Errorf("after the reload: %s", got)
			}
			tokens := strings.SplitAfter(tokenLines(), "\n")
			for i, line := range tokens {
				if strings.Contains(line, "t-operator") {
					tokens[i] = ""
				}
			}
			reload(yaml(strings.Join(tokens, ""), ""))
			if got := page(browser.Get(base + "/ui/limits")); !strings.HasPrefix(got, "/ui/login?next=%2Fui%2Flimits ") {
				t.Errorf("without its token the browser comes to %.100s", got)
			}
			p.logs(t, `msg="admin: login" by=t-operator`)
			if strings.Contains(p.log.String(), "canary") {
				t.Error("the log shows a token")
			}
		})
	}
}
