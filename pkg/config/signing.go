package config

import (
	"crypto/tls"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type fileSignature struct {
	// Life bounds the time from the acceptance of a call without a signer to its
	// sending: later, its signature would be stale. Default: no bound.
	Life *duration `key:"life"`
	// Once is true if the same bytes are valid for one sending only: they hold a nonce.
	// Default: the preset's.
	Once bool `key:"once"`
}

type fileSigner struct {
	// Kind is alipay, alipay-v3, wechatpay-v2, wechatpay-v3, antom, oauth2, exec or http. Default: none.
	Kind string `key:"kind"`
	// Key refers to the private RSA key, or the API key of wechatpay-v2: file:PATH (mode
	// 0600) or env:NAME.
	Key string `key:"key"`
	// AppID is the app, or Antom's client, that the key belongs to. Default: that of the request.
	AppID string `key:"app_id"`
	// CertSN is app_cert_sn of alipay-v3 in certificate mode. Default: that of the request.
	CertSN string `key:"cert_sn"`
	// Merchant is mchid of wechatpay-v2 and -v3, and Serial the number of v3's certificate.
	Merchant string `key:"merchant"`
	Serial   string `key:"serial"`
	// TokenURL is the token endpoint of oauth2; ClientID and ClientSecret (file:PATH, mode
	// 0600, or env:NAME) are the credentials of the client there.
	TokenURL     string `key:"token_url"`
	ClientID     string `key:"client_id"`
	ClientSecret string `key:"client_secret"`
	// AuthStyle is the place of the credentials: header (Basic) or params (the body). Default header.
	AuthStyle string `key:"auth_style"`
	// Scopes are requested; EndpointParams are further parameters of the body, NAME=VALUE:
	// keys of YAML lose their case. Default: none.
	Scopes         []string `key:"scopes"`
	EndpointParams []string `key:"endpoint_params"`
	// MinInterval is the least time from the end of a fetch to the next one. Default 1s.
	MinInterval *duration `key:"min_interval"`
	// Command is the program of exec, with its arguments.
	Command []string `key:"command"`
	// URL is the service of http.
	URL string `key:"url"`
	// Timeout bounds one answer of a program, a service or a token endpoint. Default 5s.
	Timeout *duration `key:"timeout"`
}

// convert returns nil if there is no signer, or a faulty one. A token endpoint has the TLS
// configuration of the upstream, and its max_pause.
func (f fileSigner) convert(faults *faultList, path string, tls *tls.Config, maxPause time.Duration) upstream.Signer {
	c := signer.Config{
		Kind: f.Kind, Key: f.Key, AppID: f.AppID, CertSN: f.CertSN,
		Merchant: f.Merchant, Serial: f.Serial, Command: f.Command, URL: f.URL,
		TokenURL: f.TokenURL, ClientID: f.ClientID, ClientSecret: f.ClientSecret, AuthStyle: f.AuthStyle,
		Scopes: f.Scopes, EndpointParams: f.EndpointParams, TLS: tls, MaxPause: maxPause,
	}
	positive(faults, path+".min_interval", f.MinInterval, &c.MinInterval)
	positive(faults, path+".timeout", f.Timeout, &c.Timeout)
	if f.Kind == "" {
		if !reflect.ValueOf(f).IsZero() {
			faults.add(path+".kind", "is missing; give one of: %s", strings.Join(signer.Kinds, ", "))
		}
		return nil
	}
	build := signer.New
	if faults.closed {
		build = func(c signer.Config) (upstream.Signer, error) { return unusable{}, signer.Check(c) }
	}
	s, err := build(c)
	if err == nil {
		return s
	}
	for _, err := range split(err) {
		var field *upstream.FieldError
		if errors.As(err, &field) {
			faults.add(path+"."+field.Field, "%w", field.Err)
		}
	}
	return nil
}
