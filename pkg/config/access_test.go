package config

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// withAccess returns a file with lines in front of an upstream.
func withAccess(lines string) []byte {
	return []byte(lines + "\nstore: memory\nupstreams: {a: {url: 'http://a.test', concurrency: 1}}\n")
}

func TestAccess(t *testing.T) {
	cert, key := certificateFile(t, t.TempDir(), "admin")
	one, two := sha256.Sum256([]byte("one")), sha256.Sum256([]byte("two"))
	c, err := Parse(withAccess(fmt.Sprintf(`
admin: [127.0.0.1:0, "unix:/run/admin.sock"]
monitor: ":9091"
access:
  hosts: [Throttler.Pay.internal.]
  anyone: viewer
  tokens:
    - {name: oncall, role: operator, sha256: %x}
    - {name: shop, role: submitter, sha256: [%X, %x]}
  certificates: [{name: ops, role: admin, uri: "spiffe://pay/ops"}]
  sockets: [{user: root, role: admin}, {group: "4711", role: viewer}]
  session: 8h
  tls: {cert: %s, key: 'file:%s', client_ca: %s}
`, sha256.Sum256(nil), one, two, cert, key, cert)))
	if err != nil {
		t.Fatal(err)
	}
	a := c.Access
	got := []any{c.Admin, c.AdminKey(1), c.Monitor, a.Hosts, a.Anyone, a.Tokens[1], a.Certificates, a.Sockets, a.Session}
	want := []any{[]string{"127.0.0.1:0", "unix:/run/admin.sock"}, "admin[1]", ":9091", []string{"throttler.pay.internal"}, "viewer",
		Token{"shop", "submitter", [][32]byte{one, two}}, []CallerCertificate{{"ops", "admin", "spiffe://pay/ops", ""}}, []Socket{{false, 0, "admin"}, {true, 4711, "viewer"}}, 8 * time.Hour}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if a.TLS.MinVersion != tls.VersionTLS12 || a.TLS.ClientAuth != tls.VerifyClientCertIfGiven || a.TLS.ClientCAs == nil || !slices.Equal(a.TLS.NextProtos, []string{"http/1.1"}) || len(c.Warnings) != 1 {
		t.Errorf("TLS %+v, warnings %q", a.TLS, c.Warnings)
	}
}

// TestAccessWithoutCallers: a section without keys, such as one whose lines are commented
// out, keeps callers out; and a variable makes a section.
func TestAccessWithoutCallers(t *testing.T) {
	for text, want := range map[string]*Access{
		"":                          nil,
		"access:\n  # tokens: []":   {Session: DefaultSession},
		"Access: {}":                {Session: DefaultSession},
		"access: {tokens: []}":      {Session: DefaultSession},
		"access: {anyone: viewer}":  {Session: DefaultSession, Anyone: "viewer"},
		"access: {tls: {cert: ''}}": {Session: DefaultSession},
	} {
		c, err := Parse(withAccess(text))
		if err != nil || !reflect.DeepEqual(c.Access, want) {
			t.Errorf("%q: %+v, %v, want %+v", text, c.Access, err, want)
			continue
		}
		if silent := want == nil || want.Anyone != ""; silent == strings.Contains(fmt.Sprint(c.Warnings), "access: names no caller") {
			t.Errorf("%q: warnings %q", text, c.Warnings)
		}
	}
	t.Setenv("THROTTLER_ACCESS_ANYONE", "viewer")
	t.Setenv("THROTTLER_ADMIN", "127.0.0.1:0, unix:/run/admin.sock")
	t.Setenv("THROTTLER_TOKEN", "thr_secret") // of commands
	c, err := Load(write(t, string(withAccess(""))), nil)
	if err != nil || c.Access == nil || c.Access.Anyone != "viewer" || len(c.Admin) != 2 || len(c.Warnings) != 1 {
		t.Errorf("from the environment: %+v, %v", c, err)
	}
	t.Setenv("THROTTLER_ADMIN", "127.0.0.1:0,9090")
	if _, err := Load(write(t, string(withAccess(""))), nil); err == nil || !strings.HasPrefix(err.Error(), `THROTTLER_ADMIN: admin[1]: "9090" is not`) {
		t.Errorf("a bad address of the environment: %v", err)
	}
}

func TestCertificateFits(t *testing.T) {
	ops, _ := url.Parse("spiffe://pay/ops")
	leaf := &x509.Certificate{URIs: []*url.URL{ops}, DNSNames: []string{"Ops.test"}}
	for c, fits := range map[CallerCertificate]bool{
		{URI: "spiffe://pay/ops"}:  true,
		{URI: "spiffe://pay/ops2"}: false,
		{DNS: "ops.test"}:          true,
		{DNS: "test"}:              false,
		{}:                         false,
	} {
		if c.Fits(leaf) != fits {
			t.Errorf("%+v fits: %v", c, !fits)
		}
	}
}

// TestDiffOfAccess: callers are told apart by their names, hashes are hidden, and addresses
// wait for a restart.
func TestDiffOfAccess(t *testing.T) {
	var configs []*Config
	for _, text := range []string{`
access: {tokens: [{name: oncall, role: viewer, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}]}`, `
admin: [127.0.0.1:9090, "unix:/run/a.sock"]
monitor: 127.0.0.1:9091
access:
  hosts: [pay.internal]
  tokens:
    - {name: shop, role: submitter, sha256: 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3}
    - {name: oncall, role: operator, sha256: [60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752]}`} {
		c, err := Parse(withAccess(text))
		if err != nil {
			t.Fatal(err)
		}
		configs = append(configs, c)
	}
	want := []string{
		"access.hosts[0]: new, pay.internal",
		"access.tokens[oncall].role: viewer → operator",
		"access.tokens[oncall].sha256: removed (value hidden)",
		"access.tokens[oncall].sha256[0]: new (value hidden)",
		"access.tokens[shop].name: new, shop",
		"access.tokens[shop].role: new, submitter",
		"access.tokens[shop].sha256: new (value hidden)",
		"admin: 127.0.0.1:9090 → 127.0.0.1:9090, unix:/run/a.sock; stays as it is until a restart",
		"monitor: new, 127.0.0.1:9091; stays as it is until a restart",
	}
	if got := lines(configs[0].Diff(configs[1])); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
