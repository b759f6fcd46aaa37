package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/api/client"
)

// clientTimeout bounds a request to the admin API; its responses are short.
const clientTimeout = 10 * time.Second

// adminFlag adds the flag with the address of a running sidecar's admin API.
func adminFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("admin", cmp.Or(os.Getenv("THROTTLER_ADMIN"), client.DefaultTarget), "`address` of the sidecar's admin API; THROTTLER_ADMIN sets it, too")
}

// newClient returns a client of the admin API at --admin.
func newClient(cmd *cobra.Command) (*client.ClientWithResponses, error) {
	addr, _ := cmd.Flags().GetString("admin")
	c, err := client.New(addr, os.Getenv("THROTTLER_TOKEN"))
	if err != nil {
		return nil, fmt.Errorf("--admin: %w", err)
	}
	return c, nil
}

// read returns the body of an answer, as it came.
func read(cmd *cobra.Command, request func(context.Context, *client.ClientWithResponses) (*http.Response, error)) ([]byte, error) {
	c, err := newClient(cmd)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), clientTimeout)
	defer cancel()
	resp, err := request(ctx, c)
	if err != nil {
		return nil, hinted(err)
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// hinted adds the next step to the error of a request.
func hinted(err error) error {
	if errors.Is(err, client.ErrUnreachable) {
		return fmt.Errorf("%w; is the sidecar running, and is --admin its address?", err)
	}
	return err
}

// subscribe calls f for each event until f fails, ctx ends, which is no error, or the
// sidecar stays unreachable. It resumes a broken stream at the event where it broke.
func subscribe(ctx context.Context, c *client.ClientWithResponses, params client.FollowEventsParams, f func(sse.Event) error) error {
	first, cancelFirst := context.WithTimeout(ctx, clientTimeout)
	defer cancelFirst()
	if _, err := c.GetHealthWithResponse(first); err != nil { // without retries: the sidecar should be there at first
		return hinted(err)
	}
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	api := c.ClientInterface.(*client.Client)
	req, err := client.NewFollowEventsRequest(api.Server, &params)
	if err != nil {
		return err
	}
	events := sse.Client{
		HTTPClient: &http.Client{Transport: roundTripper{api.Client}},
		Backoff:    sse.Backoff{InitialInterval: 200 * time.Millisecond, MaxRetries: 5},
	}
	var failed error
	connection := events.NewConnection(req.WithContext(streaming))
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
	var refused *client.Error
	if errors.As(err, &refused) {
		return refused
	}
	var lost *sse.ConnectionError
	if errors.As(err, &lost) {
		err = lost.Err
	}
	return hinted(err)
}

// A roundTripper sends the requests of a stream by a client of the API.
type roundTripper struct{ client.HttpRequestDoer }

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return t.Do(r) }
