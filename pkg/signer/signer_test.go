package signer

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed-30fe103d/throttler/internal/gateway"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

const app = "2021000000000001"

// keyFile writes a new private key and returns the reference and the public key.
func keyFile(t *testing.T) (reference string, public *rsa.PublicKey, keys gateway.Keys) {
	t.Helper()
	keys = gateway.NewKeys()
	name := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(name, []byte(keys.Private), 0o600); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(keys.Public))
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return "file:" + name, parsed.(*rsa.PublicKey), keys
}

func newSigner(t *testing.T, c Config) upstream.Signer {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func verify(t *testing.T, key *rsa.PublicKey, text, signature string) {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(signature)
	sum := sha256.Sum256([]byte(text))
	if err != nil || rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], raw) != nil {
		t.Errorf("%q is not the signature of %q", signature, text)
	}
}

// A gateway that verifies accepts the signature, with the parameters in
// query, form or multipart body; the time stamp is new and the business
// parameters stay.
func TestAlipay(t *testing.T) {
	ref, _, keys := keyFile(t)
	g, err := gateway.New(gateway.Config{Apps: map[string]string{app: keys.Public}})
	if err != nil {
		t.Fatal(err)
	}
	params := url.Values{
		"app_id": {app}, "method": {gateway.Refund}, "format": {"JSON"}, "charset": {"utf-8"}, "sign_type": {"RSA2"}, "version": {"1.0"},
		"timestamp": {"2020-01-01 00:00:00"}, "sign": {"c3RhbGU="}, "notify_url": {""},
		"biz_content": {`{"out_trade_no":"T1","out_request_no":"R1","refund_amount":"1.00","refund_reason":"退 货 & +"}`},
	}
	common, business := url.Values{}, url.Values{}
	for name, v := range params {
		if name == "biz_content" {
			business[name] = v
		} else {
			common[name] = v
		}
	}
	var multi bytes.Buffer
	mw := multipart.NewWriter(&multi)
	for name, v := range params {
		mw.WriteField(name, v[0])
	}
	fw, _ := mw.CreateFormFile("file", "x.bin")
	fw.Write([]byte("\x00\x01"))
	mw.Close()
	const encoded = "application/x-www-form-urlencoded;charset=utf-8"
	tests := map[string]*upstream.Request{
		"all in the body":                {Method: "POST", Target: "/gateway.do", Header: http.Header{"Content-Type": {encoded}}, Body: []byte(params.Encode())},
		"charset in the query":           {Method: "POST", Target: "/gateway.do?charset=utf-8", Header: http.Header{"Content-Type": {encoded}}, Body: []byte(params.Encode())},
		"common parameters in the query": {Method: "POST", Target: "/gateway.do?" + common.Encode(), Header: http.Header{"Content-Type": {encoded}}, Body: []byte(business.Encode())},
		"all in the query":               {Method: "GET", Target: "/gateway.do?" + params.Encode()},
		"multipart":                      {Method: "POST", Target: "/gateway.do", Header: http.Header{"Content-Type": {mw.FormDataContentType()}}, Body: multi.Bytes()},
		"unsigned":                       {Method: "POST", Target: "/gateway.do", Header: http.Header{"Content-Type": {encoded}}, Body: []byte("app_id=" + app + "&method=alipay.trade.refund&version=1.0&biz_content=" + url.QueryEscape(params.Get("biz_content")))},
	}
	s := newSigner(t, Config{Kind: "alipay", Key: ref, AppID: app})
	for name, r := range tests {
		t.Run(name, func(t *testing.T) {
			before := upstream.NewInput(r.Clone())
			if err := s.Sign(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			req := httptest.NewRequest(r.Method, r.Target, bytes.NewReader(r.Body))
			req.Header = r.Header
			if r.Header == nil {
				req.Header = http.Header{}
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, req)
			if !strings.Contains(w.Body.String(), `"code":"10000"`) {
				t.Errorf("the gateway says %s", w.Body)
			}
			after := upstream.NewInput(r)
			biz, _ := upstream.Compile(`param("biz_content") + param("method")`, upstream.Key)
			was, _ := biz.Key(before)
			if is, _ := biz.Key(after); is != was || was == "" {
				t.Errorf("the business content became %q", is)
			}
			stamp, _ := upstream.Compile(`param("timestamp")`, upstream.Key)
			at, _ := stamp.Key(after)
			if made, err := time.ParseInLocation(time.DateTime, at, beijing); err != nil || time.Since(made) > time.Minute {
				t.Errorf("time stamp %q", at)
			}
			if name == "multipart" && !bytes.Contains(r.Body, []byte("\x00\x01")) {
				t.Error("the file is gone")
			}
		})
	}
	for name, r := range map[string]*upstream.Request{
		"of another app":     {Method: "GET", Target: "/gateway.do?app_id=2088&method=x"},
		"has no app_id":      {Method: "GET", Target: "/gateway.do?method=x"},
		"query is malformed": {Method: "GET", Target: "/gateway.do?app_id=%zz"},
	} {
		err := s.Sign(t.Context(), r)
		var temporary interface{ Temporary() bool }
		if err == nil || errors.As(err, &temporary) {
			t.Errorf("%s: %v, want an error for good", name, err)
		}
	}
}

func TestAlipayV3(t *testing.T) {
	ref, public, _ := keyFile(t)
	s := newSigner(t, Config{Kind: "alipay-v3", Key: ref})
	seen := make(map[string]bool)
	for range 3 {
		r := &upstream.Request{Method: "POST", Target: "/v3/alipay/trade/query?a=%20b", Body: []byte(`{"out_trade_no":"T1"}`), Header: http.Header{
			"Authorization":         {"ALIPAY-SHA256withRSA app_id=2021,app_cert_sn=c0ffee,nonce=old,timestamp=1,expired_seconds=120,sign=x"},
			"Alipay-App-Auth-Token": {"token"},
		}}
		if err := s.Sign(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		auth := strings.TrimPrefix(r.Header.Get("Authorization"), "ALIPAY-SHA256withRSA ")
		text, signature, _ := strings.Cut(auth, ",sign=")
		verify(t, public, text+"\nPOST\n/v3/alipay/trade/query?a=%20b\n{\"out_trade_no\":\"T1\"}\ntoken\n", signature)
		p := parameters(auth)
		ms, _ := strconv.ParseInt(p["timestamp"], 10, 64)
		if p["app_id"] != "2021" || p["app_cert_sn"] != "c0ffee" || p["expired_seconds"] != "120" || p["nonce"] == "old" || seen[p["nonce"]] || time.Since(time.UnixMilli(ms)).Abs() > time.Minute {
			t.Errorf("authorization %q", auth)
		}
		seen[p["nonce"]] = true
	}
	if err := s.Sign(t.Context(), &upstream.Request{Method: "GET", Target: "/v3/x"}); err == nil {
		t.Error("a request without app_id was signed")
	}
	s = newSigner(t, Config{Kind: "alipay-v3", Key: ref, AppID: app, CertSN: "sn"})
	r := &upstream.Request{Method: "GET", Target: "/v3/x"}
	if err := s.Sign(t.Context(), r); err != nil || !strings.Contains(r.Header.Get("Authorization"), "app_id="+app+",app_cert_sn=sn,") {
		t.Errorf("%v, %v", r.Header, err)
	}
}

// TestAlipaySM2: an app with SM2 keys is told so, instead of a signature that its platform
// refuses.
func TestAlipaySM2(t *testing.T) {
	ref, _, _ := keyFile(t)
	s := newSigner(t, Config{Kind: "alipay", Key: ref})
	r := &upstream.Request{Method: "POST", Target: "/gateway.do?app_id=2021&method=alipay.trade.query&sign_type=SM2"}
	if err := s.Sign(t.Context(), r); err == nil || !strings.Contains(err.Error(), "SM2") {
		t.Errorf("signed as RSA2: %v", err)
	}
	const key = "MIGHAgEAMBMGByqGSM49AgEGCCqBHM9VAYItBG0wawIBAQQg+G4AOUkd22LiJfnO32pPJZtcw51MPRuo528QO23nyCWhRANCAASiK6Lx2Oyk6amGG2z37v6dQWtKrq+QLIX57y7cZ190Kt6UeMGHp5/J+UuIOLV6s8O/+TNwAfmuyX5iP5lTjRRp"
	for name, text := range map[string]string{"bare": key, "PEM": "-----BEGIN PRIVATE KEY-----\n" + key + "\n-----END PRIVATE KEY-----\n"} {
		t.Setenv("SM2_KEY", text)
		for _, kind := range []string{"alipay", "alipay-v3"} {
			if _, err := New(Config{Kind: kind, Key: "env:SM2_KEY"}); err == nil || !strings.Contains(err.Error(), "what env:SM2_KEY names is a key of SM2") {
				t.Errorf("%s of a %s key of SM2: %v", kind, name, err)
			}
		}
	}
}

// TestUploads: of a multipart body one part is signed, the files are not, and no byte of it
// changes.
func TestUploads(t *testing.T) {
	ref, public, _ := keyFile(t)
	body := func(parts ...string) []byte {
		var b bytes.Buffer
		for _, p := range parts {
			b.WriteString("--x\r\nContent-Disposition: form-data; " + p + "\r\n")
		}
		b.WriteString("--x--\r\n")
		return b.Bytes()
	}
	const file, other = "name=\"image\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n\x00\xff", "name=\"more\"\r\n\r\n1"
	const text = `{"filename":"退.png"}`
	for _, kind := range []struct {
		name, part string
		config     Config
		signed     func(r *upstream.Request) (head, tail, signature string)
	}{
		{"alipay-v3", "data", Config{AppID: app}, func(r *upstream.Request) (string, string, string) {
			auth, signature, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), alipayScheme), ",sign=")
			return auth + "\nPOST\n/v3/upload\n", "\n", signature
		}},
		{"wechatpay-v3", "meta", Config{Merchant: "1900009191", Serial: "5157F0"}, func(r *upstream.Request) (string, string, string) {
			m := regexp.MustCompile(`nonce_str="(\w+)",timestamp="(\d+)",.*signature="(.+)"$`).FindStringSubmatch(r.Header.Get("Authorization"))
			return "POST\n/v3/upload\n" + m[2] + "\n" + m[1] + "\n", "\n", m[3]
		}},
	} {
		kind.config.Kind, kind.config.Key = kind.name, ref
		s := newSigner(t, kind.config)
		part := "name=\"" + kind.part + "\"\r\nContent-Type: application/json\r\n\r\n"
		for _, tt := range []struct {
			name   string
			parts  []string
			signed string
			err    string
		}{
			{"a part and a file", []string{part + text, file}, text, ""},
			{"the file first", []string{file, other, part + text}, text, ""},
			{"an empty part", []string{part, file}, "", ""},
			{"no part", []string{file, other}, "", ""},
			{"a file of its name", []string{"name=\"" + kind.part + "\"; filename=\"b\"\r\n\r\n{}", part + text}, text, ""},
			{"twice", []string{part + text, part + text}, "", "part " + kind.part + " twice"},
			{"malformed", []string{"no head"}, "", "malformed"},
		} {
			r := &upstream.Request{Method: "POST", Target: "/v3/upload", Header: http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}, Body: body(tt.parts...)}
			before := bytes.Clone(r.Body)
			err := s.Sign(t.Context(), r)
			if tt.err != "" || err != nil {
				if err == nil || tt.err == "" || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%s, %s: %v, want %q", kind.name, tt.name, err, tt.err)
				}
				continue
			}
			head, tail, signature := kind.signed(r)
			verify(t, public, head+tt.signed+tail, signature)
			if !bytes.Equal(r.Body, before) {
				t.Errorf("%s, %s: the body became %q", kind.name, tt.name, r.Body)
			}
		}
	}
}

func TestWechatPay(t *testing.T) {
	ref, public, _ := keyFile(t)
	s := newSigner(t, Config{Kind: "wechatpay-v3", Key: ref, Merchant: "1900009191", Serial: "5157F0"})
	r := &upstream.Request{Method: "POST", Target: "/v3/refund/domestic/refunds?x=1", Body: []byte(`{"out_refund_no":"R1"}`)}
	if err := s.Sign(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`^WECHATPAY2-SHA256-RSA2048 mchid="1900009191",nonce_str="(\w+)",timestamp="(\d+)",serial_no="5157F0",signature="(.+)"$`).FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil {
		t.Fatalf("authorization %q", r.Header.Get("Authorization"))
	}
	verify(t, public, "POST\n/v3/refund/domestic/refunds?x=1\n"+m[2]+"\n"+m[1]+"\n{\"out_refund_no\":\"R1\"}\n", m[3])
}

// hooked is the program or service that signs: it doubles the body.
func hooked(question []byte) []byte {
	var q Hook
	if json.Unmarshal(question, &q) != nil || q.Method != "POST" || q.Headers["X-A"] != "1" {
		return []byte("garbage")
	}
	body := append(*q.Body, *q.Body...)
	answer, _ := json.Marshal(Hook{Target: q.Target + "?signed", Headers: map[string]string{"X-Sign": "s", "X-Old": ""}, Body: &body})
	return answer
}

// TestMain turns the test binary into the program that signs.
func TestMain(m *testing.M) {
	switch os.Getenv("SIGNER_TEST") {
	case "sign":
		question, _ := io.ReadAll(os.Stdin)
		os.Stdout.Write(hooked(question))
		os.Exit(0)
	case "fail":
		os.Stderr.WriteString("canary")
		os.Exit(3)
	case "hang":
		select {}
	}
	os.Exit(m.Run())
}

func TestHooks(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/sign":
			w.Write(hooked(question))
		case "/redirect":
			http.Redirect(w, r, "/sign", http.StatusTemporaryRedirect)
		case "/hang":
			<-r.Context().Done()
		default:
			w.WriteHeader(503)
		}
	}))
	defer service.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(t.TempDir(), "sign")
	if err := os.WriteFile(gone, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, env string
		config    Config
		want      string // of the error, "" for none
	}{
		{"program", "sign", Config{Kind: "exec", Command: []string{self}}, ""},
		{"program that fails", "fail", Config{Kind: "exec", Command: []string{self}}, "exit status 3"},
		{"program that hangs", "hang", Config{Kind: "exec", Command: []string{self}, Timeout: 100 * time.Millisecond}, "killed"},
		{"program that has gone", "", Config{Kind: "exec", Command: []string{gone}}, "no such file"},
		{"service", "", Config{Kind: "http", URL: service.URL + "/sign"}, ""},
		{"service that fails", "", Config{Kind: "http", URL: service.URL + "/canary"}, "status 503"},
		{"service that redirects", "", Config{Kind: "http", URL: service.URL + "/redirect"}, "status 307"},
		{"service that hangs", "", Config{Kind: "http", URL: service.URL + "/hang", Timeout: 50 * time.Millisecond}, "deadline exceeded"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.env != "" {
				t.Setenv("SIGNER_TEST", tt.env)
			}
			r := &upstream.Request{Method: "POST", Target: "/x", Header: http.Header{"X-A": {"1"}, "X-Old": {"o"}}, Body: []byte("b")}
			signer := newSigner(t, tt.config)
			if strings.HasSuffix(tt.name, "gone") {
				os.Remove(gone)
			}
			err := signer.Sign(t.Context(), r)
			if tt.want == "" {
				if err != nil || r.Target != "/x?signed" || r.Header.Get("X-Sign") != "s" || r.Header.Values("X-Old") != nil || string(r.Body) != "bb" {
					t.Errorf("%+v, %v", r, err)
				}
				return
			}
			var temporary interface{ Temporary() bool }
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") || !errors.As(err, &temporary) || !temporary.Temporary() {
				t.Errorf("error %v, want a temporary one with %q that shows no secret", err, tt.want)
			}
		})
	}
}

func TestWebhook(t *testing.T) {
	t.Setenv("HOOK_SECRET", "whsec_"+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 24)))
	s, err := NewWebhook("env:HOOK_SECRET")
	if err != nil {
		t.Fatal(err)
	}
	r := &upstream.Request{Method: "POST", Target: "/", Header: http.Header{"Webhook-Id": {"call.done"}}, Body: []byte(`{"type":"call.done"}`)}
	if err := s.Sign(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	other, err := standardwebhooks.NewWebhook(os.Getenv("HOOK_SECRET"))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Verify(r.Body, r.Header); err != nil {
		t.Error(err)
	}
	if err := other.Verify([]byte("{}"), r.Header); err == nil {
		t.Error("another body has the same signature")
	}
	if s.Sign(context.Background(), &upstream.Request{}) == nil {
		t.Error("signed without an id")
	}
	t.Setenv("HOOK_SECRET", "not base64!")
	if _, err := NewWebhook("env:HOOK_SECRET"); err == nil || strings.Contains(err.Error(), "not base64!") {
		t.Errorf("a bad secret: %v", err)
	}
}

func TestSecret(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		os.Chmod(path, mode)
		return "file:" + path
	}
	t.Setenv("GIVEN", " s3cret\n")
	t.Setenv("EMPTY", "")
	tests := []struct{ reference, want, err string }{
		{file("good", "s3cret\n", 0o600), "s3cret", ""},
		{file("strict", "s3cret", 0o400), "s3cret", ""},
		{"env:GIVEN", "s3cret", ""},
		{file("group", "s3cret", 0o640), "", "has mode 0640, and others than its owner may use it; run chmod 600 on it"},
		{file("all", "s3cret", 0o604), "", "has mode 0604"},
		{file("empty", " \n", 0o600), "", "is empty"},
		{file("large", strings.Repeat("x", maxFile+1), 0o600), "", "has more than"},
		{"file:" + dir, "", "is not a file"},
		{"file:/nonexistent", "", "no such file"},
		{"env:EMPTY", "", "EMPTY is not set"},
		{"s3cret", "", "is no reference to a secret"},
		{"file:", "", "is no reference to a secret"},
		{"vault:x", "", "is no reference to a secret"},
	}
	for _, tt := range tests {
		got, err := Secret(tt.reference)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && (!strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("Secret(%s) = %q, %v; want %q, %q", tt.reference, got, err, tt.want, tt.err)
		}
	}
}

// TestOtherKeys: the error names what there is instead of a private RSA key.
func TestOtherKeys(t *testing.T) {
	private := gateway.NewKeys()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sec1, _ := x509.MarshalECPrivateKey(ec)
	pkcs8, _ := x509.MarshalPKCS8PrivateKey(ec)
	certificate, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, &ec.PublicKey, ec)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(private.Public))
	inPEM := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for text, want := range map[string]string{
		private.Public: "is a public key; name the private key",
		base64.StdEncoding.EncodeToString(block.Bytes):           "is a public key; name the private key",
		inPEM("CERTIFICATE", certificate):                        "is a certificate; name the private key",
		inPEM("EC PRIVATE KEY", sec1):                            "is a private key, but no RSA key",
		inPEM("PRIVATE KEY", pkcs8):                              "is a private key, but no RSA key",
		inPEM("ENCRYPTED PRIVATE KEY", []byte("canary")):         "is encrypted with a password; decrypt it with: openssl pkey",
		inPEM("PRIVATE KEY", []byte("canary")):                   "is not a private RSA key in PEM",
		base64.StdEncoding.EncodeToString([]byte("canary")):      "is not a private RSA key in PEM",
		private.Private[:len(private.Private)/2] + " not base64": "is not a private RSA key in PEM",
	} {
		t.Setenv("KEY", text)
		_, err := New(Config{Kind: "alipay", Key: "env:KEY"})
		if err == nil || !strings.Contains(err.Error(), "key: what env:KEY names "+want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%.40s…: %v, want %s", text, err, want)
		}
	}
}

func TestNewTellsAllFaultsAtOnce(t *testing.T) {
	t.Setenv("NOT_A_KEY", "canary")
	t.Setenv("NO_API_KEY", "-----BEGIN PRIVATE KEY-----\ncanary")
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		config Config
		want   []string
	}{
		{Config{Kind: "rsa"}, []string{`kind: "rsa" is unknown, must be one of: alipay, alipay-v3, wechatpay-v2, wechatpay-v3, antom, oauth2, exec, http`}},
		{Config{Kind: "alipay"}, []string{"key: is missing"}},
		{Config{Kind: "alipay", Key: "env:NOT_A_KEY", Merchant: "1"}, []string{"key: what env:NOT_A_KEY names is not a private RSA key", "merchant: means nothing"}},
		{Config{Kind: "wechatpay-v3", AppID: "1"}, []string{"key: is missing", "merchant: is missing", "serial: is missing", "app_id: means nothing"}},
		{Config{Kind: "wechatpay-v2", Serial: "1"}, []string{"key: is missing", "merchant: is missing", "serial: means nothing"}},
		{Config{Kind: "wechatpay-v2", Key: "env:NO_API_KEY", Merchant: "1"}, []string{"key: the secret that env:NO_API_KEY names is not an API key: 32 letters and digits"}},
		{Config{Kind: "exec", Timeout: -1}, []string{"command: is missing", "timeout: is -1ns"}},
		{Config{Kind: "exec", Command: []string{"/nonexistent/sign", "canary"}}, []string{"command: there is no program /nonexistent/sign; write the path of one"}},
		{Config{Kind: "exec", Command: []string{"throttler-has-no-such-program"}}, []string{"command: there is no program throttler-has-no-such-program in the directories of PATH"}},
		{Config{Kind: "exec", Command: []string{plain}}, []string{"command: program " + plain + " cannot be executed; run chmod +x on it"}},
		{Config{Kind: "http", URL: "ftp://u:canary@x"}, []string{"url: is not a URL"}},
	}
	for _, tt := range tests {
		_, err := New(tt.config)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%+v: %v, want %q", tt.config, err, want)
			}
		}
	}
}
