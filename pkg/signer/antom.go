package signer

import (
	"cmp"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// antom signs for Antom (Alipay+): method, path with query, a line break, and client, time
// and body, separated by points (docs.antom.com/ac/ams/digital_signature). The time is in
// milliseconds, as the platform's own SDKs give it. Multipart bodies are refused: the signed
// body is JSON.
type antom struct {
	key    *rsa.PrivateKey
	client string
}

func (s *antom) Sign(_ context.Context, r *upstream.Request) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); strings.HasPrefix(kind, "multipart/") {
		return errors.New("a multipart body cannot be signed here; send it without waiting, or by a signer of kind exec or http")
	}
	client := cmp.Or(r.Header.Get("Client-Id"), s.client)
	switch {
	case client == "":
		return errors.New("the request has no Client-Id; give the signer app_id")
	case s.client != "" && client != s.client:
		return fmt.Errorf("the request is of client %s, the key is that of %s", client, s.client)
	}
	stamp := strconv.FormatInt(time.Now().UnixMilli(), 10)
	signature, err := rsaSHA256(s.key, r.Method+" "+r.Target+"\n"+client+"."+stamp+"."+string(r.Body))
	if err != nil {
		return err
	}
	version := cmp.Or(parameters(r.Header.Get("Signature"))["keyVersion"], "1")
	setHeader(r, "Client-Id", client)
	setHeader(r, "Request-Time", stamp)
	setHeader(r, "Signature", "algorithm=RSA256,keyVersion="+version+",signature="+url.QueryEscape(signature))
	return nil
}
