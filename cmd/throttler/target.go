package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/api/client"
)

// Variables of commands that speak to a running sidecar; they are keys of no configuration.
const (
	addrVariable  = "THROTTLER_ADDR"
	tokenVariable = "THROTTLER_TOKEN"
)

// Bounds of a request to the admin API, and of an answer, in bytes.
const (
	clientTimeout = 30 * time.Second
	longTimeout   = 30 * time.Minute // of actions that wait for a platform
	maxAnswer     = 64 << 20
)

// addrFlag adds the flag with the address of a running sidecar's admin API.
func addrFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("addr", "", "`address` of the sidecar's admin API: host:port, a URL, or unix:PATH (default $"+addrVariable+", or "+client.DefaultTarget+")")
}

// newClient returns a client of the address of --addr, with the token of THROTTLER_TOKEN. A
// token has no flag: other users of the machine see the flags of a process.
func newClient(cmd *cobra.Command) (*client.Client, error) {
	addr, _ := cmd.Flags().GetString("addr")
	c, err := client.New(cmp.Or(addr, os.Getenv(addrVariable), client.DefaultTarget), os.Getenv(tokenVariable))
	if err != nil {
		return nil, usage("--addr: %w", err)
	}
	return c.ClientInterface.(*client.Client), nil
}

// request returns a request with a body in JSON, or a batch, if there is one.
func request(ctx context.Context, c *client.Client, method, path string, query url.Values, in any) (*http.Request, error) {
	var (
		body io.Reader
		kind string
	)
	if in != nil {
		text, media, err := jsonBody(in)
		if err != nil {
			return nil, err
		}
		body, kind = bytes.NewReader(text), media
	}
	u := strings.TrimSuffix(c.Server, "/") + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err == nil && in != nil {
		req.Header.Set("Content-Type", kind)
	}
	return req, err
}

// callAPI asks something of the admin API of a command's sidecar, and returns the answer as it came.
func callAPI(cmd *cobra.Command, method, path string, query url.Values, in any) ([]byte, error) {
	c, err := newClient(cmd)
	if err != nil {
		return nil, err
	}
	length := clientTimeout
	if strings.HasSuffix(path, "/ask") || strings.HasSuffix(path, "/bulk") { // they wait for slots and answers
		length = longTimeout
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), length)
	defer cancel()
	req, err := request(ctx, c, method, path, query, in)
	if err != nil {
		return nil, err
	}
	resp, err := c.Client.Do(req)
	if err != nil {
		return nil, hinted(err)
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
}

// read returns an answer of the admin API of a command's sidecar, as it came and decoded.
func read[T any](cmd *cobra.Command, path string, query url.Values) (body []byte, v *T, err error) {
	body, err = callAPI(cmd, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, nil, err
	}
	v, err = decode[T](body)
	return body, v, err
}

// firstCalls returns the first page of a list that has calls, or the last one. A page may be empty
// although there are more.
func firstCalls(cmd *cobra.Command, query url.Values) (body []byte, page *client.Calls, err error) {
	for {
		body, page, err = read[client.Calls](cmd, "/v1/calls", query)
		if err != nil || len(page.Calls) > 0 || page.Next == "" {
			return body, page, err
		}
		query.Set("cursor", page.Next)
	}
}

// decode decodes an answer of the admin API.
func decode[T any](body []byte) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("the admin API's answer is not the JSON that is expected (is the sidecar of another version?): %w", err)
	}
	return v, nil
}

// hinted adds the next step and the exit code to the error of a request.
func hinted(err error) error {
	var refused *client.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return coded(exitUnreachable, fmt.Errorf("%w; the sidecar may have done it all the same: look before you repeat it", err))
	case errors.Is(err, client.ErrUnreachable):
		return coded(exitUnreachable, fmt.Errorf("%w; is the sidecar running, and is --addr or %s its address?", err, addrVariable))
	case !errors.As(err, &refused):
		return err
	case refused.Status == http.StatusUnauthorized:
		return coded(exitForbidden, fmt.Errorf("%w; give a token in %s", err, tokenVariable))
	case refused.Problem.Reason == "bad_config":
		return coded(exitConfig, err)
	}
	return coded(codeOf(refused.Status), err)
}

// subscribe calls f for each event until f fails, ctx ends, which is no error, or the
// sidecar stays unreachable. It resumes a broken stream at the event where it broke.
func subscribe(ctx context.Context, cmd *cobra.Command, query url.Values, f func(sse.Event) error) error {
	if _, err := callAPI(cmd, http.MethodGet, "/healthz", nil, nil); err != nil { // without retries: the sidecar should be there at first
		return err
	}
	c, err := newClient(cmd)
	if err != nil {
		return err
	}
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := request(streaming, c, http.MethodGet, "/v1/events", query, nil)
	if err != nil {
		return err
	}
	events := sse.Client{
		HTTPClient: &http.Client{Transport: roundTripper{c.Client}},
		Backoff:    sse.Backoff{InitialInterval: 200 * time.Millisecond, MaxRetries: 5},
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
		err = lost.Err
	}
	return hinted(err)
}

// A roundTripper sends the requests of a stream by a client of the API.
type roundTripper struct{ client.HttpRequestDoer }

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return t.Do(r) }
