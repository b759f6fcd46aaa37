package signer

import (
	"cmp"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// beijing is the zone in which Alipay's gateway reads time stamps, on every machine.
var beijing = time.FixedZone("UTC+8", 8*60*60)

// alipay signs for gateway.do: all non-empty parameters except sign, sorted
// by name, from query, form and multipart body alike; files are not signed
// (opendocs.alipay.com/common/02kf5q).
type alipay struct {
	key *rsa.PrivateKey
	app string
}

func (s *alipay) Sign(_ context.Context, r *upstream.Request) error {
	f, err := openForm(r)
	if err != nil {
		return err
	}
	if err := sameApp(s.app, f.get("app_id")); err != nil {
		return err
	}
	if kind := f.get("sign_type"); kind == "SM2" {
		return errors.New("the request has sign_type SM2, and this signer makes RSA2; give the upstream a signer of kind exec or http")
	}
	f.set("timestamp", time.Now().In(beijing).Format(time.DateTime))
	f.set("sign_type", "RSA2")
	var signed []string
	for _, name := range f.names() {
		if v := f.get(name); name != "sign" && v != "" {
			signed = append(signed, name+"="+v)
		}
	}
	slices.Sort(signed)
	signature, err := rsaSHA256(s.key, strings.Join(signed, "&"))
	if err != nil {
		return err
	}
	f.set("sign", signature)
	return f.close(r)
}

// sameApp refuses a request of another app than the key's.
func sameApp(want, got string) error {
	switch {
	case got == "":
		return errors.New("the request has no app_id")
	case want != "" && want != got:
		return fmt.Errorf("the request is of app %s, the key is that of %s", got, want)
	}
	return nil
}

// alipayV3 signs for /v3/…: authString, method, path with query, body and, if
// present, the app_auth_token, each followed by a line break
// (opendocs.alipay.com/open-v3/054q58). Of a file upload it is the part data instead of
// the body (#curl in src/alipay.ts of alipay-sdk-nodejs-all).
type alipayV3 struct {
	key         *rsa.PrivateKey
	app, certSN string
}

const alipayScheme = "ALIPAY-SHA256withRSA "

func (s *alipayV3) Sign(_ context.Context, r *upstream.Request) error {
	body, err := signedBody(r, "data")
	if err != nil {
		return err
	}
	old := parameters(strings.TrimPrefix(r.Header.Get("Authorization"), alipayScheme))
	app := cmp.Or(old["app_id"], s.app)
	if err := sameApp(s.app, app); err != nil {
		return err
	}
	auth := "app_id=" + app
	if sn := cmp.Or(s.certSN, old["app_cert_sn"]); sn != "" {
		auth += ",app_cert_sn=" + sn
	}
	auth += ",nonce=" + nonce() + ",timestamp=" + strconv.FormatInt(time.Now().UnixMilli(), 10)
	if seconds := old["expired_seconds"]; seconds != "" {
		auth += ",expired_seconds=" + seconds
	}
	text := auth + "\n" + r.Method + "\n" + r.Target + "\n" + body + "\n"
	if token := r.Header.Get("Alipay-App-Auth-Token"); token != "" {
		text += token + "\n"
	}
	signature, err := rsaSHA256(s.key, text)
	if err != nil {
		return err
	}
	setHeader(r, "Authorization", alipayScheme+auth+",sign="+signature)
	return nil
}

// parameters reads a=b,c=d.
func parameters(s string) map[string]string {
	p := make(map[string]string)
	for part := range strings.SplitSeq(s, ",") {
		if name, value, ok := strings.Cut(strings.TrimSpace(part), "="); ok {
			p[name] = value
		}
	}
	return p
}
