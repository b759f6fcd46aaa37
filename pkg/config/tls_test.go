package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificateFile writes NAME.pem and NAME.key, valid from a day ago, and returns both paths.
func certificateFile(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestCertificates: their order, and what becomes of a request without one.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificateFile(t, dir, "a")
	entry := fmt.Sprintf("cert: %s, key: 'file:%s'", cert, key)
	for section, want := range map[string]struct {
		certificates int
		only, own    bool
	}{
		"{}":              {0, false, false},
		"{" + entry + "}": {0, false, true},
		"{certificates: [{when: 'query(\"m\") == \"1\"', " + entry + "}, {when: 'true', " + entry + "}]}":               {2, true, false},
		"{otherwise: refuse, " + entry + ", certificates: [{when: 'method == \"GET\"', " + entry + "}]}":                {1, true, true},
		"{otherwise: default, certificates: [{when: 'method == \"GET\"', " + entry + "}]}":                              {1, false, false},
		"{otherwise: default, ca: " + cert + ", " + entry + ", certificates: [{when: 'path == \"/\"', " + entry + "}]}": {1, false, true},
	} {
		c, err := Parse([]byte("store: memory\nupstreams: {a: {url: 'https://a.test', concurrency: 2, tls: " + section + "}}"))
		if err != nil {
			t.Errorf("%s: %v", section, err)
			continue
		}
		u := c.Scheduler.Upstreams["a"]
		if own := u.TLS != nil && len(u.TLS.Certificates) == 1; len(u.Certificates) != want.certificates || u.OnlyCertified != want.only || own != want.own || len(c.Warnings) != 1 {
			t.Errorf("%s: %d certificates, only %v, own %v, warnings %q", section, len(u.Certificates), u.OnlyCertified, own, c.Warnings)
		}
	}
}

// TestFaultyCertificates: all faults at once, each with its line.
func TestFaultyCertificates(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificateFile(t, dir, "a")
	_, other := certificateFile(t, dir, "b")
	open := filepath.Join(dir, "open.key")
	if err := os.WriteFile(open, []byte("s3cret"), 0o644); err != nil {
		t.Fatal(err)
	}
	os.Chmod(open, 0o644)
	yaml := `upstreams:
  a:
    url: https://a.test
    concurrency: 1
    tls:
      otherwise: defualt
      certificates:
        - {when: 'query("m") == "1"', cert: CERT, key: 'file:KEY'}
        - {when: 'query("m") == "1"', cert: CERT, key: 'file:KEY'}
        - {cert: CERT, key: 'file:KEY'}
        - {when: 'query("m") == "2"', cert: CERT}
        - {when: 'query("m") == "3"'}
        - {when: 'query("m") == "4"', cert: DIR/none.pem, key: 'file:OPEN'}
        - {when: 'query("m") == "5"', cert: CERT, key: 'file:OTHER'}
        - {when: 'query("m")', cert: CERT, key: 'file:KEY'}
  b: {url: 'http://b.test', concurrency: 1, tls: {certificates: [{when: 'true', cert: CERT, key: 'file:KEY'}]}}
  c: {url: 'https://c.test', concurrency: 1, tls: {otherwise: refuse}}
`
	_, err := Parse([]byte(strings.NewReplacer("CERT", cert, "OTHER", other, "OPEN", open, "KEY", key, "DIR", dir).Replace(yaml)))
	const at = "upstreams.a.tls."
	want := []string{
		`line 6: ` + at + `otherwise: "defualt" is unknown, must be one of: refuse, default; did you mean default?`,
		`line 9: ` + at + `certificates[1].when: is that of certificates[0] too, so this one is never used`,
		`line 10: ` + at + `certificates[2].when: is missing; give the requests`,
		`line 11: ` + at + `certificates[3]: cert and key belong together`,
		`line 12: ` + at + `certificates[4].cert: is missing`,
		`line 13: ` + at + `certificates[5].cert: open ` + dir + `/none.pem: no such file`,
		`line 13: ` + at + `certificates[5].key: ` + open + ` has mode 0644`,
		`line 14: ` + at + `certificates[6].cert: ` + cert + ` and the key do not make a pair`,
		`line 15: ` + at + `certificates[7].when: gives `,
		`line 16: upstreams.b.tls.certificates: are given, but the URL is http`,
		`line 17: upstreams.c.tls.otherwise: means nothing without certificates`,
	}
	faults, _ := err.(Errors)
	for i := range want {
		if len(faults) != len(want) || !strings.HasPrefix(faults[i].Error(), want[i]) || strings.Contains(faults[i].Error(), "s3cret") {
			t.Fatalf("faults:\n%v\nwant these beginnings:\n%s", err, strings.Join(want, "\n"))
		}
	}
}

// TestWarnOfEnd: from 30 days before its end a certificate is warned of.
func TestWarnOfEnd(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	end := begin.Add(365 * 24 * time.Hour)
	leaf := &x509.Certificate{NotBefore: begin, NotAfter: end}
	for _, tt := range []struct {
		now  time.Time
		want string
	}{
		{begin.Add(-time.Second), "k: c.pem is not valid before 2026-01-01T00:00:00Z, by the clock of this host"},
		{begin, ""},
		{end.Add(-endsSoon), ""},
		{end.Add(-endsSoon + time.Second), "k: c.pem ends on 2027-01-01T00:00:00Z; put a new one"},
		{end, "k: c.pem ends on"},
		{end.Add(time.Second), "k: c.pem has ended on 2027-01-01T00:00:00Z, and servers refuse it"},
	} {
		faults := newFaultList(&places{})
		warnOfEnd(faults, "k", "c.pem", "servers", leaf, tt.now)
		got := ""
		if len(faults.warnings) > 0 {
			got = faults.warnings[0].Error()
		}
		if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("at %v: %q, want %q", tt.now, got, tt.want)
		}
	}
}
