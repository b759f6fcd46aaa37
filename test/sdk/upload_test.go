package sdk

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-pay/gopay"
	gopaygateway "github.com/go-pay/gopay/alipay"
	gopayv3 "github.com/go-pay/gopay/alipay/v3"
	"github.com/go-pay/gopay/pkg/xhttp"
	"github.com/wechatpay-apiv3/wechatpay-go/core"
	"github.com/wechatpay-apiv3/wechatpay-go/core/option"
	"github.com/wechatpay-apiv3/wechatpay-go/services/fileuploader"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

const image = "\x89PNG\r\n\x00\xff"

// TestUploads: SDKs upload a file through a sidecar that signs. The app's key is the
// sidecar's alone, so the signature that holds is not the SDK's.
func TestUploads(t *testing.T) {
	sdks, app := gateway.NewKeys(), gateway.NewKeys()
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, []byte(app.Private), 0o600); err != nil {
		t.Fatal(err)
	}
	public := parsePublic(t, app.Public)
	file := &gopay.File{Name: "a.png", Content: []byte(image)}
	for _, tt := range []struct {
		preset, more string                                 // keys of the signer
		text         func(r *http.Request) (string, string) // that the platform verifies, and the signature
		upload       func(base string) error
	}{
		{"alipay", "", gatewayText, func(base string) error {
			sdk, err := gopaygateway.NewClient(appID, bare(sdks.Private), true)
			if err != nil {
				return err
			}
			sdk.SetHttpClient(xhttp.NewClient().SetTransport(to{base}))
			_, err = sdk.FileUploadRequest(t.Context(), gopay.BodyMap{"image_type": "png", "image_name": "退 货", "image_content": file}, "alipay.offline.material.image.upload")
			return err
		}},
		{"alipay-v3", "", alipayV3Text, func(base string) error {
			sdk, err := gopayv3.NewClientV3(appID, bare(sdks.Private), true)
			if err != nil {
				return err
			}
			sdk.SetProxyHost(base)
			r, err := sdk.AntMerchantExpandIndirectImageUpload(t.Context(), gopay.BodyMap{"image_type": "png", "image_content": file})
			if err == nil && r.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %d: %s", r.StatusCode, r.ErrResponse.Message)
			}
			return err
		}},
		{"wechatpay-v3", `, merchant: "1900009191", serial: 5157F09EFD`, wechatText, func(base string) error {
			block, _ := pem.Decode([]byte(sdks.Private))
			private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
			if err != nil {
				return err
			}
			sdk, err := core.NewClient(t.Context(), option.WithMerchantCredential("1900009191", "5157F09EFD", private),
				option.WithoutValidator(), option.WithHTTPClient(&http.Client{Transport: to{base}}))
			if err != nil {
				return err
			}
			uploader := fileuploader.ImageUploader{Client: sdk}
			_, _, err = uploader.Upload(t.Context(), strings.NewReader(image), "a.png", "image/png")
			return err
		}},
	} {
		t.Run(tt.preset, func(t *testing.T) {
			arrived := 0
			platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrived++
				if err := verifyUpload(r, public, tt.text); err != nil {
					t.Error(err)
					w.WriteHeader(http.StatusUnauthorized)
				}
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"code":"10000"}`)
			}))
			defer platform.Close()
			base := sidecar(t, tt.preset, platform.URL, fmt.Sprintf("signer: {kind: %s, key: %q%s}", tt.preset, "file:"+key, tt.more))
			if err := tt.upload(base); err != nil || arrived != 1 {
				t.Errorf("%v, %d requests came in", err, arrived)
			}
		})
	}
}

// verifyUpload checks the signature of an upload, and that its file has come whole.
func verifyUpload(r *http.Request, key *rsa.PublicKey, text func(*http.Request) (string, string)) error {
	if err := r.ParseMultipartForm(1 << 20); err != nil {
		return err
	}
	for _, files := range r.MultipartForm.File {
		f, err := files[0].Open()
		if err != nil {
			return err
		}
		if content, err := io.ReadAll(f); err != nil || !bytes.Equal(content, []byte(image)) {
			return fmt.Errorf("the file is %q, %v", content, err)
		}
	}
	if len(r.MultipartForm.File) != 1 {
		return errors.New("there is no file")
	}
	signed, signature := text(r)
	raw, err := base64.StdEncoding.DecodeString(signature)
	sum := sha256.Sum256([]byte(signed))
	if err == nil {
		err = rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], raw)
	}
	if err != nil {
		return fmt.Errorf("%q is not the signature of %q", signature, signed)
	}
	return nil
}

func gatewayText(r *http.Request) (text, signature string) {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(r.Form)) {
		if v := r.Form.Get(name); name != "sign" && v != "" {
			all = append(all, name+"="+v)
		}
	}
	return strings.Join(all, "&"), r.Form.Get("sign")
}

func alipayV3Text(r *http.Request) (text, signature string) {
	auth, signature, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "ALIPAY-SHA256withRSA "), ",sign=")
	return auth + "\n" + r.Method + "\n" + r.URL.RequestURI() + "\n" + r.PostForm.Get("data") + "\n", signature
}

var wechatAuth = regexp.MustCompile(`nonce_str="(\w+)",timestamp="(\d+)",.*signature="(.+)"$`)

func wechatText(r *http.Request) (text, signature string) {
	parts := wechatAuth.FindStringSubmatch(r.Header.Get("Authorization"))
	if parts == nil {
		return "", ""
	}
	return r.Method + "\n" + r.URL.RequestURI() + "\n" + parts[2] + "\n" + parts[1] + "\n" + r.PostForm.Get("meta") + "\n", parts[3]
}

func parsePublic(t *testing.T, text string) *rsa.PublicKey {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(*rsa.PublicKey)
}
