package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// appID is the merchant's app at the stand-in.
const appID = "2021000000000001"

//go:embed alipay.yaml refunds.csv
var files embed.FS

// local makes the refunds of refunds.csv under the limits of alipay.yaml, without an
// account: a gateway in this process takes the platform's place. It verifies every
// signature, counts arrivals by itself, and loses its answer to the fourth refund.
func local(run func(job) error, out io.Writer) error {
	dir, err := os.MkdirTemp("", "throttler-alipay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	g, keys, err := platform(func(method string, n int) (f gateway.Fault) {
		if method == gateway.Refund && n == 4 {
			f = gateway.Fault{Answer: gateway.Cut, Executed: true}
		}
		return f
	})
	if err != nil {
		return err
	}
	server, err := gateway.Start("", g)
	if err != nil {
		return err
	}
	defer server.Close()
	j := job{config: filepath.Join(dir, "alipay.yaml"), refunds: filepath.Join(dir, "refunds.csv"), after: time.Second}
	if err := errors.Join(extract("alipay.yaml", j.config), extract("refunds.csv", j.refunds)); err != nil {
		return err
	}
	settings, err := environment(dir, server.URL, keys.Private, g.PublicKey)
	if err != nil {
		return err
	}
	for name, value := range settings {
		os.Setenv(name, value)
	}

	err = run(j)
	made, refunds := g.Refunds(appID), g.Method(appID, gateway.Refund)
	fmt.Fprintf(out, "\nthe platform: %d trades refunded, by %d requests, at most %d in a second (the limit is 5); %d requests limited\n",
		len(made), len(refunds.Arrivals), refunds.Most(), g.App(appID).Limited)
	for trade, n := range made {
		if n > 1 {
			err = errors.Join(err, fmt.Errorf("%s was refunded %d times", trade, n))
		}
	}
	return err
}

func extract(name, path string) error {
	text, err := files.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// platform returns a gateway with the limits of alipay.yaml, and the app's keys.
func platform(fault func(method string, n int) gateway.Fault) (*gateway.Gateway, gateway.Keys, error) {
	keys := gateway.NewKeys()
	g, err := gateway.New(gateway.Config{
		Apps:         map[string]string{appID: keys.Public},
		AppLimit:     gateway.Limit{Calls: 10, Window: time.Second},
		MethodLimits: map[string]gateway.Limit{gateway.Refund: {Calls: 5, Window: time.Second}},
		Fault:        fault,
	})
	return g, keys, err
}

// environment returns the environment of a merchant of the gateway at a URL, and writes its
// key files to a directory.
func environment(dir, url, private, public string) (map[string]string, error) {
	privateFile, publicFile := filepath.Join(dir, "private.pem"), filepath.Join(dir, "public.pem")
	return map[string]string{
		"ALIPAY_APP_ID":                         appID,
		"ALIPAY_PRIVATE_KEY_FILE":               privateFile,
		"ALIPAY_PUBLIC_KEY_FILE":                publicFile,
		"THROTTLER_UPSTREAMS_ALIPAY_SIGNER_KEY": "file:" + privateFile,
		"THROTTLER_UPSTREAMS_ALIPAY_URL":        url,
		"THROTTLER_UPSTREAMS_ALIPAY_LATE":       "200ms", // this gateway counts at once
		"THROTTLER_STORE":                       filepath.Join(dir, "refunds.db"),
	}, errors.Join(os.WriteFile(privateFile, []byte(private), 0o600), os.WriteFile(publicFile, []byte(public), 0o600))
}
