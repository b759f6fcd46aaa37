package config

import (
	"errors"
	"strings"

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
	// Kind is alipay, alipay-v3, wechatpay-v3, exec or http. Default: none.
	Kind string `key:"kind"`
	// Key refers to the private RSA key: file:PATH (mode 0600) or env:NAME.
	Key string `key:"key"`
	// AppID is the app that the key belongs to. Default: that of the request.
	AppID string `key:"app_id"`
	// CertSN is app_cert_sn of alipay-v3 in certificate mode. Default: that of the request.
	CertSN string `key:"cert_sn"`
	// Merchant is mchid of wechatpay-v3, and Serial the number of its certificate.
	Merchant string `key:"merchant"`
	Serial   string `key:"serial"`
	// Command is the program of exec, with its arguments.
	Command []string `key:"command"`
	// URL is the service of http.
	URL string `key:"url"`
	// Timeout bounds one answer of a program or service. Default 5s.
	Timeout *duration `key:"timeout"`
}

// convert returns nil if there is no signer, or a faulty one.
func (f fileSigner) convert(faults *faultList, path string) upstream.Signer {
	c := signer.Config{
		Kind: f.Kind, Key: f.Key, AppID: f.AppID, CertSN: f.CertSN,
		Merchant: f.Merchant, Serial: f.Serial, Command: f.Command, URL: f.URL,
	}
	positive(faults, path+".timeout", f.Timeout, &c.Timeout)
	if f.Kind == "" {
		if f.Key != "" || f.AppID != "" || f.Merchant != "" || f.Serial != "" || f.URL != "" || len(f.Command) > 0 {
			faults.add(path+".kind", "is missing; give one of: %s", strings.Join(signer.Kinds, ", "))
		}
		return nil
	}
	s, err := signer.New(c)
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
