package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

// adminTimeout bounds a request to the admin API; its answers are short.
const adminTimeout = 10 * time.Second

// adminFlag adds the flag that says where the admin API of a running sidecar is.
func adminFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("admin", cmp.Or(os.Getenv("THROTTLER_ADMIN"), config.DefaultAdmin), "`address` of the sidecar's admin API")
}

// An adminAPI is that of a running sidecar.
type adminAPI struct{ addr string }

func adminOf(cmd *cobra.Command) adminAPI {
	addr, _ := cmd.Flags().GetString("admin")
	return adminAPI{addr}
}

func (a adminAPI) url(path string, query url.Values) string {
	u := url.URL{Scheme: "http", Host: a.addr, Path: path, RawQuery: query.Encode()}
	return u.String()
}

// get fetches an answer as it is, JSON.
func (a adminAPI) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url(path, query), nil)
	if err != nil {
		return nil, fmt.Errorf("admin address %q: %w", a.addr, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, a.unreachable(err)
	}
	defer resp.Body.Close()
	if err := problem(resp); err != nil {
		return nil, err
	}
	return io.ReadAll(resp.Body)
}

func (a adminAPI) unreachable(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("no admin API at %s: %w; is the sidecar running, and is --admin its address?", a.addr, err)
}

// problem returns an answer that is an error as one.
func problem(resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var p server.Problem
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&p); err != nil || p.Detail == "" {
		return fmt.Errorf("the admin API answered %s", resp.Status)
	}
	return errors.New(p.Detail)
}

// follow calls f for each event until f fails, ctx ends, which is no error, or the
// sidecar stays away. A broken connection is taken up again where it broke.
func (a adminAPI) follow(ctx context.Context, query url.Values, f func(sse.Event) error) error {
	if _, err := a.get(ctx, "/healthz", nil); err != nil { // one who was never there is not waited for
		return err
	}
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(following, http.MethodGet, a.url("/v1/events", query), nil)
	if err != nil {
		return fmt.Errorf("admin address %q: %w", a.addr, err)
	}
	client := sse.Client{
		ResponseValidator: problem,
		Backoff:           sse.Backoff{InitialInterval: 200 * time.Millisecond, MaxRetries: 5},
	}
	var failed error
	connection := client.NewConnection(req)
	connection.SubscribeToAll(func(ev sse.Event) {
		if failed == nil {
			if failed = f(ev); failed != nil {
				cancel()
			}
		}
	})
	err = connection.Connect()
	if failed != nil || ctx.Err() != nil {
		return failed
	}
	var lost *sse.ConnectionError
	if errors.As(err, &lost) {
		if err = lost.Err; lost.Reason == "response validation failed" {
			return err // it is there, and refuses
		}
	}
	return a.unreachable(err)
}
