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
// (pay.weixin.qq.com/doc/v3/merchant/4012365336). Of a file upload it is the part meta
// instead of the body (services/fileuploader of wechatpay-go).
type wechatpay struct {
	key              *rsa.PrivateKey
	merchant, serial string
}

func (s *wechatpay) Sign(_ context.Context, r *upstream.Request) error {
	body, err := signedBody(r, "meta")
	if err != nil {
		return err
	}
	stamp, random := fmt.Sprint(time.Now().Unix()), nonce()
	signature, err := rsaSHA256(s.key, r.Method+"\n"+r.Target+"\n"+stamp+"\n"+random+"\n"+body+"\n")
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
