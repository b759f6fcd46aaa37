package main

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/smartwalle/alipay/v3"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// signer signs a request of the gateway form when it is sent: the business
// content stays, time stamp and signature are new.
type signer struct{ sdk *alipay.Client }

func newSigner(m merchant) (signer, error) {
	sdk, err := m.sdk(nil) // it signs, and sends nothing
	return signer{sdk}, err
}

func (s signer) Sign(_ context.Context, r *upstream.Request) error {
	form, err := url.ParseQuery(string(r.Body))
	if err != nil {
		return err
	}
	signed, err := s.sdk.URLValues(content{form: form})
	if err != nil {
		return err
	}
	r.Body = []byte(signed.Encode())
	return nil
}

// content is a request's business content as a parameter of the SDK.
type content struct {
	alipay.AuxParam
	form url.Values
}

func (c content) APIName() string { return c.form.Get("method") }

func (c content) MarshalJSON() ([]byte, error) {
	return json.RawMessage(strings.TrimSpace(c.form.Get("biz_content"))).MarshalJSON()
}

// Params are the common parameters that the SDK does not make by itself.
func (c content) Params() map[string]string {
	params := make(map[string]string)
	for _, name := range []string{"notify_url", "return_url", "app_auth_token"} {
		params[name] = c.form.Get(name)
	}
	return params
}
