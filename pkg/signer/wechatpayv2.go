package signer

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/pkg/internal/xmltext"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// wechatpayV2 signs for WeChat Pay's XML API: all elements that are not empty, except
// sign, sorted by name and followed by the API key, by MD5 or HMAC-SHA256
// (pay.weixin.qq.com/wiki/doc/api/jsapi.php?chapter=4_3). A nonce_str that is there stays:
// no page asks for a new one, and the workwx_sign of a caller covers it.
type wechatpayV2 struct{ key, merchant string }

// apiKey reads the API key of a merchant: 32 letters and digits. A text with lines, such as a
// private key, is refused.
func apiKey(reference string) (string, error) {
	text, err := Secret(reference)
	if err == nil && (len(text) > 128 || strings.ContainsAny(text, " \t\r\n")) {
		err = fmt.Errorf("the secret that %s names is not an API key: 32 letters and digits, set at the merchant platform for API v2", reference)
	}
	return text, err
}

func (s *wechatpayV2) Sign(_ context.Context, r *upstream.Request) error {
	root, err := xmltext.Read(r.Body)
	if err != nil {
		return fmt.Errorf("the body cannot be signed: %w", err)
	}
	signed, seen := make(map[string]string), make(map[string]bool)
	var body bytes.Buffer
	at := 0
	for _, e := range root.Elements {
		empty := strings.TrimSpace(e.Text) == ""
		switch {
		case seen[e.Name]:
			return fmt.Errorf("the body has two elements %s", e.Name)
		case len(e.Elements) > 0:
			return fmt.Errorf("element %s has elements, and WeChat Pay v2 signs texts; send it as v3, or by a signer of kind exec or http", e.Name)
		case e.Name == "sign", e.Name == "nonce_str" && empty: // added anew
			body.Write(r.Body[at:e.From])
			at = e.To
		case !empty:
			signed[e.Name] = e.Text
		}
		seen[e.Name] = true
	}
	if err := s.sameMerchant(signed); err != nil {
		return err
	}
	end := bytes.LastIndexByte(r.Body[:root.To], '<') // of the root
	body.Write(r.Body[at:end])
	if signed["nonce_str"] == "" {
		signed["nonce_str"] = nonce()
		fmt.Fprintf(&body, "<nonce_str>%s</nonce_str>", signed["nonce_str"])
	}
	sign, err := s.signature(r.Target, signed)
	if err != nil {
		return err
	}
	fmt.Fprintf(&body, "<sign>%s</sign>", sign)
	body.Write(r.Body[end:])
	r.Body = body.Bytes()
	return nil
}

// sameMerchant refuses a request of another merchant than the key's.
func (s *wechatpayV2) sameMerchant(signed map[string]string) error {
	got := signed["mch_id"]
	if got == "" {
		got = signed["mchid"] // of transfers
	}
	switch {
	case got == "":
		return errors.New("the request has no mch_id")
	case got != s.merchant:
		return fmt.Errorf("the request is of merchant %q, the key is that of %s", got, s.merchant)
	}
	return nil
}

// signature returns the signature of texts by name. Profit sharing takes HMAC-SHA256 only
// (pay.weixin.qq.com/doc/v2/merchant/4011941670); elsewhere MD5 is the default.
func (s *wechatpayV2) signature(target string, signed map[string]string) (string, error) {
	var h hash.Hash
	switch kind := signed["sign_type"]; {
	case kind == "HMAC-SHA256", kind == "" && strings.Contains(target, "/pay/profitsharing"), kind == "" && strings.Contains(target, "/pay/multiprofitsharing"):
		h = hmac.New(sha256.New, []byte(s.key))
	case kind == "", kind == "MD5":
		h = md5.New()
	default:
		return "", fmt.Errorf("sign_type %q is unknown, must be MD5 or HMAC-SHA256", kind)
	}
	for _, name := range slices.Sorted(maps.Keys(signed)) {
		io.WriteString(h, name+"="+signed[name]+"&")
	}
	io.WriteString(h, "key="+s.key)
	return strings.ToUpper(hex.EncodeToString(h.Sum(nil))), nil
}
