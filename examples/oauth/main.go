// Command oauth is a signer for APIs with OAuth 2.0: a small service that sets an access
// token on each request at the moment the sidecar sends it. It gets its tokens with the
// client's credentials (RFC 6749, section 4.4), and a new one before the last expires.
//
//	OAUTH_TOKEN_URL=https://partner.example/oauth/token OAUTH_CLIENT_ID=… OAUTH_CLIENT_SECRET=… go run ./examples/oauth
//	throttler serve -c examples/oauth/oauth.yaml
//
// It listens on a loopback address, and answers every process of the machine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/seed-30fe103d/throttler/pkg/signer"
)

// tokenTimeout bounds a request for a token. It is shorter than the signer's timeout in
// the sidecar (5s), which then gets an answer with the reason.
const tokenTimeout = 4 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listen := flag.String("listen", "127.0.0.1:9100", "serve at `host:port`")
	flag.Parse()
	if err := serve(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "oauth:", err)
		os.Exit(1)
	}
}

// serve serves until ctx ends.
func serve(ctx context.Context, listen string) error {
	c, err := credentials()
	if err != nil {
		return err
	}
	s := &http.Server{Addr: listen, Handler: sign(c), ReadTimeout: tokenTimeout}
	ended := context.AfterFunc(ctx, func() { s.Close() })
	defer ended()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// credentials reads OAUTH_TOKEN_URL, OAUTH_CLIENT_ID, OAUTH_CLIENT_SECRET and, if the
// provider wants scopes, OAUTH_SCOPES with blanks between them.
func credentials() (*clientcredentials.Config, error) {
	var errs []error
	env := func(name string) string {
		v := os.Getenv(name)
		if v == "" {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
		return v
	}
	c := &clientcredentials.Config{
		TokenURL: env("OAUTH_TOKEN_URL"), ClientID: env("OAUTH_CLIENT_ID"), ClientSecret: env("OAUTH_CLIENT_SECRET"),
		Scopes: strings.Fields(os.Getenv("OAUTH_SCOPES")),
	}
	return c, errors.Join(errs...)
}

// sign returns the handler that the sidecar asks about each request. Without a token it
// answers 503: the sidecar then lets the calls wait, and asks again less and less often.
func sign(c *clientcredentials.Config) http.Handler {
	client := &http.Client{Timeout: tokenTimeout}
	tokens := c.TokenSource(context.WithValue(context.Background(), oauth2.HTTPClient, client)) // keeps a token while it is valid
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		token, err := tokens.Token()
		if err != nil {
			slog.Error("no token", "err", reason(err)) // the sidecar logs the status only
			http.Error(w, "the provider gave no token", http.StatusServiceUnavailable)
			return
		}
		json.NewEncoder(w).Encode(signer.Hook{Headers: map[string]string{"Authorization": token.Type() + " " + token.AccessToken}})
	})
}

// reason returns an error without the provider's answer, which may have secrets in it.
func reason(err error) string {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) {
		return fmt.Sprintf("the provider answers %s %s", refused.Response.Status, refused.ErrorCode)
	}
	return err.Error()
}
