package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/server"
)

// A caller asks the admin API in one way.
type adminCaller struct {
	base   string // URL
	token  string // empty for none
	client *http.Client
}

// dialer returns a client that comes to an address, with a certificate if there is one, on
// a new connection for each request.
func dialer(addr string, certs ...tls.Certificate) *http.Client {
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certs}, // the server's name is another test's
	}}
}

// ask makes a request and returns the status and the beginning of the body, which of a
// stream is empty.
func (c adminCaller) ask(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
		if name == "Host" {
			req.Host = value
		}
	}
	resp, err := c.client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return resp.StatusCode, ""
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(text)
}

// A row is an operation of the admin API, with the roles that may do it: v, s, o and a.
type accessRow struct{ roles, body string }

// noCall is the id of a call that is not there: an operation on it is allowed with 404.
const noCall = "01a20ef8-aabd-7e58-bd65-c25cf01451d2"

// accessRows has each operation.
var accessRows = map[string]accessRow{
	"POST /v1/calls":                               {"soa", `{"upstream":"alipay","method":"POST","path":"/x"}`},
	"POST /v1/calls/batch":                         {"soa", `{"upstream":"alipay","method":"POST","path":"/x"}`},
	"GET /v1/calls":                                {"vsoa", ""},
	"GET /v1/calls/{id}":                           {"vsoa", ""},
	"GET /v1/calls/{id}/response":                  {"soa", ""},
	"GET /v1/calls/{id}/request":                   {"soa", ""},
	"POST /v1/calls/{id}/cancel":                   {"soa", ""},
	"POST /v1/calls/{id}/resolve":                  {"oa", `{"outcome":"done","attempt":1,"reason":"x"}`},
	"POST /v1/calls/{id}/retry":                    {"oa", `{"attempt":1,"reason":"x"}`},
	"POST /v1/calls/{id}/ask":                      {"oa", ""},
	"PATCH /v1/calls/{id}":                         {"oa", `{"priority":1}`},
	"POST /v1/calls/bulk":                          {"oa", `{"action":"cancel","filter":{"calls":["` + noCall + `"]}}`},
	"GET /v1/refusals":                             {"voa", ""},
	"GET /v1/events":                               {"voa", ""},
	"GET /v1/events/latest":                        {"voa", ""},
	"GET /v1/pauses":                               {"voa", ""},
	"POST /v1/pauses":                              {"oa", `{"upstream":"alipay","for":"1ms"}`},
	"DELETE /v1/pauses/{id}":                       {"oa", ""},
	"GET /v1/upstreams":                            {"voa", ""},
	"GET /v1/upstreams/{name}":                     {"voa", ""},
	"GET /v1/upstreams/{name}/limits/{limit}":      {"voa", ""},
	"GET /v1/upstreams/{name}/limits/{limit}/keys": {"voa", ""},
	"GET /v1/upstreams/{name}/flows":               {"voa", ""},
	"GET /v1/history":                              {"voa", ""},
	"GET /v1/limits":                               {"voa", ""},
	"GET /v1/config":                               {"voa", ""},
	"GET /v1/config/diff":                          {"voa", ""},
	"POST /v1/config/reload":                       {"a", ""},
	"GET /v1/audit":                                {"a", ""},
	"GET /v1/info":                                 {"vsoa", ""},
	"POST /v1/plan":                                {"a", `{"settings":["rate=1/s for=1s"]}`},
	"GET /v1/fleet":                                {"voa", ""},
	"POST /v1/fleet/move":                          {"a", ""},
	"POST /v1/fleet/bury":                          {"a", `{"replica":"a","it_has_ended":true}`},
	"POST /v1/session":                             {"all", `{"token":""}`},
	"DELETE /v1/session":                           {"all", ""},
	"GET /metrics":                                 {"voa", ""},
	"GET /healthz":                                 {"all", ""},
	"GET /readyz":                                  {"all", ""},
	"GET /problems/{reason}":                       {"all", ""},
}

// mediaOf returns the header line of the body of an operation.
func mediaOf(path string) string {
	if path == "/v1/calls/batch" {
		return "Content-Type: application/x-ndjson"
	}
	return "Content-Type: application/json"
}

// TestEachOperationHasARow: a new operation needs a row above, with its roles.
func TestEachOperationHasARow(t *testing.T) {
	all := server.Operations()
	for _, op := range all {
		if _, ok := accessRows[op.Method+" "+op.Path]; !ok {
			t.Errorf("%s %s has no row: say which roles may do it", op.Method, op.Path)
		}
	}
	if len(all) != len(accessRows) {
		t.Errorf("there are %d operations and %d rows", len(all), len(accessRows))
	}
}

// TestAccessTable prints the operations and the roles that may do them, and compares them
// with the scopes of the roles and with the table of docs/on-call.md.
func TestAccessTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/on-call.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-42s %-12s", "operation", "scope")
	for _, role := range access.Roles {
		fmt.Fprintf(&table, " %-9s", role)
	}
	for _, op := range server.Operations() {
		row := accessRows[op.Method+" "+op.Path]
		fmt.Fprintf(&table, "\n%-42s %-12s", op.Method+" "+op.Path, op.Scope)
		for _, role := range access.Roles {
			may := row.roles == "all" || strings.Contains(row.roles, string(role[0]))
			if may != (op.Scope == access.Open || (access.Caller{Role: role}).May(op.Scope)) {
				t.Errorf("%s %s by %s: %v in the row", op.Method, op.Path, role, may)
			}
			fmt.Fprintf(&table, " %-9s", map[bool]string{true: "x", false: ""}[may])
		}
		last := op.Path[strings.LastIndex(op.Path, "/"):]
		if page := string(text); !strings.Contains(page, "`"+op.Method+" "+op.Path) && !strings.Contains(page, "`"+last+"`") && !strings.Contains(page, "`"+op.Path+"`") {
			t.Errorf("docs/on-call.md does not have %s %s", op.Method, op.Path)
		}
	}
	t.Logf("who may do which operation, by each way in:\n%s", &table)
}

// checkRows asks for each operation by a way in, as a caller with a role; "" is one that is
// not known. It prints the statuses.
func checkRows(t *testing.T, way string, c adminCaller, role access.Role) {
	t.Helper()
	table := ""
	defer func() { t.Logf("%s, by %q:%s", way, role, table) }()
	for _, op := range slices.Sorted(maps.Keys(accessRows)) {
		row := accessRows[op]
		method, path, _ := strings.Cut(op, " ")
		path = strings.NewReplacer("{id}", noCall, "{name}", "alipay", "{limit}", "app", "{reason}", "full").Replace(path)
		status, body := c.ask(t, method, path, row.body, mediaOf(path))
		table += fmt.Sprintf("\n%d %s", status, op)
		if strings.Contains(body, "canary") {
			t.Errorf("%s, %s by %q: the answer shows a token: %s", way, op, role, body)
		}
		switch refused := status == 401 || status == 403 || status == 429; {
		case row.roles == "all" || role != "" && strings.Contains(row.roles, string(role[0])):
			if refused || status >= 500 {
				t.Errorf("%s, %s by %q: %d %s", way, op, role, status, body)
			}
		case role == "" && status != 401 && !(status == 429 && strings.Contains(body, access.TooManyWrong)),
			role != "" && (status != 403 || !strings.Contains(body, access.NotPermitted)):
			t.Errorf("%s, %s by %q: %d %s, want a refusal", way, op, role, status, body)
		}
	}
}

// tokenLines returns the section of tokens, one for each role.
func tokenLines() string {
	lines := "  tokens:\n"
	for _, role := range access.Roles {
		lines += fmt.Sprintf("    - {name: t-%s, role: %s, sha256: %x}\n", role, role, sha256.Sum256([]byte(tokenFor(role))))
	}
	return lines
}

func tokenFor(role access.Role) string { return "thr_canary_of_" + string(role) }

// otherAddress returns an address of the machine that other hosts can reach, or one of the
// loopback network if there is none.
func otherAddress() string {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			return ip.IP.String()
		}
	}
	return "127.0.0.2"
}

const accessRest = "store: memory\nupstreams:\n  alipay: {listen: 127.0.0.1:0, url: 'http://127.0.0.1:1', limits: [{name: app, calls: 1, window: 1h}]}\n"

// without drops the scheme of a URL.
func without(url string) string { return strings.TrimPrefix(url, "http://") }

// TestOperationsByCaller asks for each operation, as each caller, by each way in.
func TestOperationsByCaller(t *testing.T) {
	t.Parallel()
	t.Run("loopback without access", func(t *testing.T) {
		p := launch(t, "admin: 127.0.0.1:0\n"+accessRest)
		for _, token := range []string{"", "wrong", tokenFor(access.Viewer)} {
			checkRows(t, "loopback without access", adminCaller{p.admin, token, dialer(without(p.admin))}, access.Admin)
		}
	})
	socket := filepath.Join(t.TempDir(), "admin.sock")
	yaml := func(sockets string) string {
		return fmt.Sprintf("admin: ['127.0.0.1:0', '%s:0', 'unix:%s']\nmonitor: 127.0.0.1:0\naccess:\n%s%s%s", otherAddress(), socket, sockets, tokenLines(), accessRest)
	}
	p := launch(t, yaml(""))
	for way, key := range map[string]string{"loopback": "admin[0]", "another address": "admin[1]", "socket": "admin[2]"} {
		t.Run(way, func(t *testing.T) {
			addr := without(p.url(t, key))
			c := adminCaller{base: "http://" + addr, client: dialer(addr)}
			if way == "socket" {
				c.base = "http://throttler"
			}
			checkRows(t, way, c, "")
			c.token = "thr_wrong"
			checkRows(t, way, c, "")
			for _, role := range access.Roles {
				c.token = tokenFor(role)
				checkRows(t, way, c, role)
			}
		})
	}
	t.Run("socket, by its user", func(t *testing.T) {
		for _, role := range access.Roles {
			if err := os.WriteFile(p.file, []byte(yaml(fmt.Sprintf("  sockets: [{user: '%d', role: %s}]\n", os.Getuid(), role))), 0o600); err != nil {
				t.Fatal(err)
			}
			if status, body := (adminCaller{p.admin, tokenFor(access.Admin), dialer(without(p.admin))}).ask(t, "POST", "/v1/config/reload", ""); status != 200 {
				t.Fatalf("reload: %d %s", status, body)
			}
			checkRows(t, "socket, by its user", adminCaller{base: "http://throttler", client: dialer("unix:" + socket)}, role)
		}
	})
	t.Run("monitor", func(t *testing.T) {
		addr := without(p.url(t, "monitor"))
		for _, token := range []string{"", "wrong", tokenFor(access.Admin)} {
			for op := range accessRows {
				method, path, _ := strings.Cut(op, " ")
				want := 404
				if slices.Contains([]string{"/metrics", "/healthz", "/readyz"}, path) {
					want = 200
				}
				if status, body := (adminCaller{"http://" + addr, token, dialer(addr)}).ask(t, method, path, ""); status != want {
					t.Errorf("monitor, %s: %d %s, want %d", op, status, body, want)
				}
			}
		}
	})
	if p.log.String() == "" || strings.Contains(p.log.String(), "canary") {
		t.Error("the log shows a token")
	}
}

// TestOperationsByCertificate is the way by mutual TLS.
func TestOperationsByCertificate(t *testing.T) {
	ca, stranger := newIssuer(t), newIssuer(t)
	ca.issue(t, "server", time.Hour)
	lines := ""
	for _, role := range access.Roles {
		lines += fmt.Sprintf("    - {name: c-%s, role: %s, uri: 'spiffe://pay/%s'}\n", role, role, role)
	}
	p := launch(t, fmt.Sprintf("admin: 127.0.0.1:0\naccess:\n%s  certificates:\n%s  tls: {cert: %s/server.pem, key: 'file:%s/server.key', client_ca: %s/ca.pem}\n%s", tokenLines(), lines, ca.dir, ca.dir, ca.dir, accessRest))
	addr := without(p.admin)
	by := func(certs ...tls.Certificate) adminCaller {
		return adminCaller{base: "https://" + addr, client: dialer(addr, certs...)}
	}
	checkRows(t, "TLS without a certificate", by(), "")
	checkRows(t, "TLS with a certificate of no entry", by(ca.issue(t, "stranger", time.Hour, "spiffe://pay/stranger")), "")
	for _, role := range access.Roles {
		checkRows(t, "mutual TLS", by(ca.issue(t, string(role), time.Hour, "spiffe://pay/"+string(role))), role)
		withToken := by()
		withToken.token = tokenFor(role)
		checkRows(t, "a token by TLS", withToken, role)
	}
	for name, cert := range map[string]tls.Certificate{
		"of another authority": stranger.issue(t, "x", time.Hour, "spiffe://pay/admin"),
		"that has ended":       ca.issue(t, "x", -time.Minute, "spiffe://pay/admin"),
	} {
		if resp, err := by(cert).client.Get("https://" + addr + "/healthz"); err == nil {
			resp.Body.Close()
			t.Errorf("a certificate %s: %d", name, resp.StatusCode)
		}
	}
	if status, body := (adminCaller{base: "http://" + addr, client: dialer(addr)}).ask(t, "GET", "/healthz", ""); status != 400 || !strings.Contains(body, "HTTPS") {
		t.Errorf("a client without TLS: %d %s", status, body)
	}
	old := by().client.Transport.(*http.Transport)
	old.TLSClientConfig.MaxVersion = tls.VersionTLS11
	if resp, err := (&http.Client{Transport: old}).Get("https://" + addr + "/healthz"); err == nil {
		resp.Body.Close()
		t.Error("TLS 1.1 is spoken")
	}
}

// TestHostsOffLoopback: a rebound name is refused at every address, and so are forms of
// pages of another origin.
func TestHostsOffLoopback(t *testing.T) {
	p := launch(t, fmt.Sprintf("admin: ['%s:0']\naccess:\n  hosts: [throttler.pay.internal]\n  anyone: operator\n%s", otherAddress(), accessRest))
	c := adminCaller{base: p.admin, client: dialer(without(p.admin))}
	for _, tt := range []struct {
		header string
		want   int
	}{
		{"Host: evil.example", 421},
		{"Host: evil.example\nOrigin: http://evil.example", 421},
		{"Host: throttler.pay.internal:9090", 201},
		{"Host: " + without(p.admin), 201},
		{"Origin: https://evil.example\nContent-Type: application/x-www-form-urlencoded", 403},
		{"Sec-Fetch-Site: cross-site", 403},
	} {
		if status, body := c.ask(t, "POST", "/v1/pauses", `{"upstream":"alipay","for":"1h"}`, strings.Split(tt.header, "\n")...); status != tt.want {
			t.Errorf("%q: %d %s, want %d", tt.header, status, body, tt.want)
		}
	}
}

// TestRevokedToken: a reload counts at the next request, and ends the streams of a token
// that is gone; a configuration without access opens no address to other hosts.
func TestRevokedToken(t *testing.T) {
	yaml := func(access string) string {
		return fmt.Sprintf("admin: ['127.0.0.1:0', '%s:0']\n%s%s", otherAddress(), access, accessRest)
	}
	p := launch(t, yaml("access:\n"+tokenLines()))
	addr := without(p.url(t, "admin[1]"))
	at := func(role access.Role) adminCaller {
		return adminCaller{"http://" + addr, tokenFor(role), dialer(addr)}
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tokenFor(access.Viewer))
	stream, err := http.DefaultClient.Do(req)
	if err != nil || stream.StatusCode != 200 {
		t.Fatalf("stream: %v, %v", stream, err)
	}
	defer stream.Body.Close()
	reload := func(access string, by adminCaller) {
		t.Helper()
		if err := os.WriteFile(p.file, []byte(yaml(access)), 0o600); err != nil {
			t.Fatal(err)
		}
		if status, body := by.ask(t, "POST", "/v1/config/reload", ""); status != 200 {
			t.Fatalf("reload: %d %s", status, body)
		}
	}
	lines := strings.SplitAfter(tokenLines(), "\n")
	rest := strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "t-viewer") }), "")
	reload("access:\n"+rest, at(access.Admin))
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, stream.Body)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the stream of a revoked token: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the stream of a revoked token goes on")
	}
	if status, body := at(access.Viewer).ask(t, "GET", "/v1/limits", ""); status != 401 {
		t.Errorf("a revoked token: %d %s", status, body)
	}
	if status, body := at(access.Operator).ask(t, "GET", "/v1/limits", ""); status != 200 {
		t.Errorf("another token: %d %s", status, body)
	}

	// The listener at the other address stays open until a restart.
	if otherAddress() == "127.0.0.2" {
		t.Skip("the machine has no address beside loopback")
	}
	text := strings.Replace(yaml(""), ", '"+otherAddress()+":0'", "", 1)
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.logs(t, "access.tokens[t-admin].role: removed")
	if status, body := at(access.Admin).ask(t, "GET", "/v1/limits", ""); status != 401 || !strings.Contains(body, "other hosts reach this address") {
		t.Errorf("without access, by another address: %d %s", status, body)
	}
	if status, _ := (adminCaller{base: p.admin, client: dialer(without(p.admin))}).ask(t, "GET", "/v1/limits", ""); status != 200 {
		t.Errorf("without access, by loopback: %d", status)
	}
	if strings.Contains(p.log.String(), "canary") {
		t.Error("the log shows a token")
	}
}

// TestRenewedServerCertificate: a reload takes the renewed certificate for new connections,
// those that are open go on, and a caller whose authority is gone is refused on them.
func TestRenewedServerCertificate(t *testing.T) {
	ca, other := newIssuer(t), newIssuer(t)
	first := ca.issue(t, "server", time.Hour)
	ops := ca.issue(t, "ops", time.Hour, "spiffe://pay/ops")
	yaml := func(authority string) string {
		return fmt.Sprintf("admin: 127.0.0.1:0\naccess:\n%s  certificates: [{name: ops, role: viewer, uri: 'spiffe://pay/ops'}]\n  tls: {cert: %s/server.pem, key: 'file:%s/server.key', client_ca: %s/ca.pem}\n%s", tokenLines(), ca.dir, ca.dir, authority, accessRest)
	}
	p := launch(t, yaml(ca.dir))
	addr := without(p.admin)
	kept := dialer(addr, ops) // one connection
	kept.Transport.(*http.Transport).DisableKeepAlives = false
	look := func(client *http.Client) (status int, serial string) {
		t.Helper()
		resp, err := client.Get("https://" + addr + "/v1/limits")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.TLS.PeerCertificates[0].SerialNumber.String()
	}
	serial := func(c tls.Certificate) string {
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.SerialNumber.String()
	}
	if status, got := look(kept); status != 200 || got != serial(first) {
		t.Errorf("at first: %d, certificate %s", status, got)
	}
	second := ca.issue(t, "server", time.Hour)
	admin := adminCaller{"https://" + addr, tokenFor(access.Admin), dialer(addr)}
	if status, body := admin.ask(t, "POST", "/v1/config/reload", ""); status != 200 {
		t.Fatalf("reload: %d %s", status, body)
	}
	if status, got := look(kept); status != 200 || got != serial(first) {
		t.Errorf("an open connection after the reload: %d, certificate %s", status, got)
	}
	if status, got := look(dialer(addr, ops)); status != 200 || got != serial(second) {
		t.Errorf("a new connection: %d, certificate %s", status, got)
	}
	if err := os.WriteFile(p.file, []byte(yaml(other.dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, body := admin.ask(t, "POST", "/v1/config/reload", ""); status != 200 {
		t.Fatalf("reload: %d %s", status, body)
	}
	if status, _ := look(kept); status != 401 {
		t.Errorf("a certificate of an authority that is gone, on an open connection: %d", status)
	}
}

// TestSocketAfterACrash: the socket of a process that was killed is replaced, and that of a
// live one is not.
func TestSocketAfterACrash(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	yaml := "admin: unix:" + socket + "\n" + accessRest
	p := launch(t, yaml)
	p.kill9()
	p = launch(t, yaml)
	c := adminCaller{base: "http://throttler", client: dialer("unix:" + socket)}
	if status, body := c.ask(t, "POST", "/v1/pauses", `{"upstream":"alipay","for":"1h"}`); status != 201 {
		t.Errorf("%d %s", status, body)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	p.logs(t, `msg="admin: pause" by=`+me.Username+" ")
	file := filepath.Join(t.TempDir(), "second.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs lockedBuffer
	if code := run(t.Context(), []string{"serve", "-c", file}, &out, &errs); code == 0 || !strings.Contains(errs.String(), "another process listens there") {
		t.Errorf("a second process: exit code %d, %s", code, &errs)
	}
	if status, _ := c.ask(t, "GET", "/healthz", ""); status != 200 {
		t.Error("the second process has taken the socket")
	}
}
