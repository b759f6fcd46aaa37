package signer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// A service of one's own signs each request when it is sent. Here it adds a token; members
// that are absent from its answer stay as they are.
func ExampleHook() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in signer.Hook
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		json.NewEncoder(w).Encode(signer.Hook{Headers: map[string]string{"Authorization": "Bearer token of " + in.Target}})
	}))
	defer service.Close()

	s, err := signer.New(signer.Config{Kind: "http", URL: service.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	refund := &upstream.Request{Method: "POST", Target: "/refunds", Header: http.Header{"Accept": {"application/json"}}}
	if err := s.Sign(context.Background(), refund); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(refund.Method, refund.Header)
	// Output: POST map[Accept:[application/json] Authorization:[Bearer token of /refunds]]
}
