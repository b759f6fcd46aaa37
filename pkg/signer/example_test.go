package signer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/gateway"
	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// The same refund, signed twice: the number of the refund stays, nonce and
// signature are new.
func Example() {
	dir, err := os.MkdirTemp("", "signer")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	key := filepath.Join(dir, "merchant.pem")
	os.WriteFile(key, []byte(gateway.NewKeys().Private), 0o600)

	s, err := signer.New(signer.Config{Kind: "wechatpay-v3", Key: "file:" + key, Merchant: "1900009191", Serial: "5157F09EFD"})
	if err != nil {
		fmt.Println(err)
		return
	}
	refund := &upstream.Request{Method: "POST", Target: "/v3/refund/domestic/refunds", Body: []byte(`{"out_refund_no":"R1"}`)}
	first, second := refund.Clone(), refund.Clone()
	s.Sign(context.Background(), first)
	s.Sign(context.Background(), second)
	a, b := first.Header.Get("Authorization"), second.Header.Get("Authorization")
	fmt.Println(strings.SplitN(a, ",", 2)[0])
	fmt.Println("same body:", string(first.Body) == string(second.Body), "same signature:", a == b)
	// Output:
	// WECHATPAY2-SHA256-RSA2048 mchid="1900009191"
	// same body: true same signature: false
}
