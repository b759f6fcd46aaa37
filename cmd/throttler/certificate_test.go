package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An issuer signs the certificates of a test.
type issuer struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	dir  string
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{dir: t.TempDir()}
	i.issue(t, "ca", time.Hour)
	return i
}

// issue writes NAME.pem and NAME.key with a certificate for a name, and for URIs.
func (i *issuer) issue(t *testing.T, name string, life time.Duration, uris ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(life), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: i.cert == nil, BasicConstraintsValid: true,
	}
	for _, text := range uris {
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	parent, signs := i.cert, i.key
	if parent == nil {
		parent, signs = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signs)
	if err != nil {
		t.Fatal(err)
	}
	if i.cert == nil {
		i.key = key
		if i.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(i.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestCertificatePerMerchant: each merchant's calls show its certificate; a call of none is
// refused; a reload takes a renewed one; check warns of one that ends.
func TestCertificatePerMerchant(t *testing.T) {
	ca := newIssuer(t)
	m1 := ca.issue(t, "m1", 24*time.Hour)
	ca.issue(t, "m2", 90*24*time.Hour)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer := r.TLS.PeerCertificates[0]
		fmt.Fprintf(w, "%s %v", peer.Subject.CommonName, peer.SerialNumber)
	}))
	api.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "server", time.Hour)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	api.EnableHTTP2 = true
	api.Config.ErrorLog = log.New(io.Discard, "", 0)
	api.StartTLS()
	defer api.Close()

	section := fmt.Sprintf("tls: {ca: %s/ca.pem, certificates: [", ca.dir)
	for _, m := range []string{"m1", "m2"} {
		section += fmt.Sprintf(`{when: 'query("mch") == "%s"', cert: %s/%s.pem, key: "file:%s/%s.key"}, `, m, ca.dir, m, ca.dir, m)
	}
	p := start(t, api.URL, section+"]}")
	get := func(merchant string) (int, string) {
		t.Helper()
		resp, err := http.Get(p.data + "/pay?mch=" + merchant)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	serial := func(c tls.Certificate) string {
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.SerialNumber.String()
	}
	for range 3 {
		if _, got := get("m1"); got != "m1 "+serial(m1) {
			t.Errorf("m1: %s", got)
		}
		if _, got := get("m2"); !strings.HasPrefix(got, "m2 ") {
			t.Errorf("m2: %s", got)
		}
	}
	if status, text := get("m3"); status != http.StatusBadRequest || !strings.Contains(text, "tls.certificates: none fits the request") {
		t.Errorf("a merchant without a certificate: %d %s", status, text)
	}
	check := func() string {
		t.Helper()
		path, _ := binary()
		out, err := exec.Command(path, "check", "-c", p.file).CombinedOutput()
		if err != nil {
			t.Fatalf("check: %v\n%s", err, out)
		}
		return string(out)
	}
	const warning = "throttler.yaml:7: upstreams.alipay.tls.certificates[0].cert: "
	if out := check(); !strings.Contains(out, warning+ca.dir+"/m1.pem ends on ") || strings.Contains(out, "m2.pem") {
		t.Errorf("check says:\n%s", out)
	}
	renewed := ca.issue(t, "m1", 90*24*time.Hour)
	resp, err := http.Post(p.admin+"/v1/config/reload", "", nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("reload: %v, %v", resp, err)
	}
	resp.Body.Close()
	if _, got := get("m1"); got != "m1 "+serial(renewed) {
		t.Errorf("m1 after its renewal: %s", got)
	}
	if out := check(); strings.Contains(out, warning) {
		t.Errorf("check after the renewal says:\n%s", out)
	}
}
