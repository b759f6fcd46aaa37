package signer

import (
	"context"
	"crypto/rsa"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// wechatpay signs for WeChat Pay v3: method, path with query, time stamp, nonce and
// body, each followed by a line break
// (pay.weixin.qq.com/doc/v3/merchant/4012365336). For a file upload the platform
// expects the signature of its meta part instead of the body. Only the sender knows
// that part: multipart bodies are refused.
type wechatpay struct {
	key              *rsa.PrivateKey
	merchant, serial string
}

func (s *wechatpay) Sign(_ context.Context, r *upstream.Request) error {
	if isMultipart(r) {
		return fmt.Errorf("a multipart body cannot be signed here: WeChat Pay signs its meta part; send it without waiting")
	}
	stamp, random := fmt.Sprint(time.Now().Unix()), nonce()
	signature, err := rsaSHA256(s.key, r.Method+"\n"+r.Target+"\n"+stamp+"\n"+random+"\n"+string(r.Body)+"\n")
	if err != nil {
		return err
	}
	setHeader(r, "Authorization", fmt.Sprintf(`WECHATPAY2-SHA256-RSA2048 mchid="%s",nonce_str="%s",timestamp="%s",serial_no="%s",signature="%s"`,
		s.merchant, random, stamp, s.serial, signature))
	return nil
}

func setHeader(r *upstream.Request, name, value string) {
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header.Set(name, value)
}
