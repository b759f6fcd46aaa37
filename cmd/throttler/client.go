package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

// clientTimeout bounds a request to the admin API; its responses are short.
const clientTimeout = 10 * time.Second

// adminFlag adds the flag with the address of a running sidecar's admin API.
func adminFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("admin", cmp.Or(os.Getenv("THROTTLER_ADMIN"), config.DefaultAdmin), "`address` of the sidecar's admin API; THROTTLER_ADMIN sets it, too")
}

// A client reads the admin API of a running sidecar.
type client struct{ addr string }

// newClient returns a client of the address of --admin: host and port, or a URL with them,
// such as that of a Location.
func newClient(cmd *cobra.Command) client {
	addr, _ := cmd.Flags().GetString("admin")
	if u, err := url.Parse(addr); err == nil && u.Scheme == "http" && u.Host != "" {
		addr = u.Host
	}
	return client{addr}
}

// badAddress is the error of an address with which there can be no request.
func (c client) badAddress() error {
	return fmt.Errorf("--admin is %q, must be host and port, such as %s", c.addr, config.DefaultAdmin)
}

func (c client) url(path string, query url.Values) string {
	u := url.URL{Scheme: "http", Host: c.addr, Path: path, RawQuery: query.Encode()}
	return u.String()
}

// get returns the body of a response, JSON.
func (c client) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(path, query), nil)
	if _, _, bad := net.SplitHostPort(c.addr); bad != nil || err != nil {
		return nil, c.badAddress()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	defer resp.Body.Close()
	if err := problem(resp); err != nil {
		return nil, err
	}
	return io.ReadAll(resp.Body)
}

func (c client) unreachable(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("no admin API at %s: %w; is the sidecar running, and is --admin its address?", c.addr, err)
}

// problem returns the error of a response, nil if it is a success.
func problem(resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var p api.Problem
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&p); err != nil || p.Detail == "" {
		return fmt.Errorf("the admin API answered %s", resp.Status)
	}
	return errors.New(p.Detail)
}

// subscribe calls f for each event until f fails, ctx ends, which is no error, or the
// sidecar stays unreachable. It resumes a broken stream at the event where it broke.
func (c client) subscribe(ctx context.Context, query url.Values, f func(sse.Event) error) error {
	if _, err := c.get(ctx, "/healthz", nil); err != nil { // without retries: the sidecar should be there at first
		return err
	}
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(streaming, http.MethodGet, c.url("/v1/events", query), nil)
	if err != nil {
		return c.badAddress()
	}
	events := sse.Client{
		ResponseValidator: problem,
		Backoff:           sse.Backoff{InitialInterval: 200 * time.Millisecond, MaxRetries: 5},
	}
	var failed error
	connection := events.NewConnection(req)
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
			return err // the sidecar refuses the subscription
		}
	}
	return c.unreachable(err)
}
