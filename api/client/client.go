// Package client calls the admin API of a running sidecar: submit calls, look at them, and
// decide about them. The methods of [ClientWithResponses], and the types of all bodies, are
// generated from api/openapi.yaml.
//
//	c, err := client.New("127.0.0.1:9090", os.Getenv("THROTTLER_TOKEN"))
//	…
//	accepted, err := c.SubmitCallWithResponse(ctx, nil, client.Submission{Upstream: "pay", Method: "POST", Target: "/refunds"})
//	…
//	call, err := c.GetCallWithResponse(ctx, accepted.JSON202.Id, &client.GetCallParams{Prefer: "wait=10"})
//
// A refusal is an error, an [*Error] with the problem (RFC 9457). So is an answer that has
// not come: the sidecar may have done then what was asked for. A repeat of a submission with
// the same Idempotency-Key makes no second call.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// DefaultTarget is the address of an admin API that is configured nowhere.
const DefaultTarget = "127.0.0.1:9090"

// maxProblem bounds the body of a refusal, in bytes.
const maxProblem = 1 << 20

// New returns a client of the admin API at a target: host:port, a URL with http or https, or
// unix:PATH for a socket. An address of all interfaces, such as :9090, is that of the loopback
// interface. The token may be empty.
func New(target, token string) (*ClientWithResponses, error) {
	base, transport, err := dial(target)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(target, "unix:") {
		target = strings.TrimPrefix(base, "http://")
	}
	return NewClientWithResponses(base, WithHTTPClient(&doer{target: target, token: token, client: &http.Client{Transport: transport}}))
}

// dial returns the URL of a target, and how it is reached.
func dial(target string) (base string, transport *http.Transport, err error) {
	transport = http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // the API is near, and a token goes with the request
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		if path == "" {
			return "", nil, badTarget(target)
		}
		var d net.Dialer
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) }
		return "http://localhost", transport, nil
	}
	scheme, hostport := "http", target
	if strings.Contains(target, "://") {
		u, err := url.Parse(target)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return "", nil, badTarget(target)
		}
		scheme, hostport = u.Scheme, u.Host
		if u.Port() == "" {
			return scheme + "://" + hostport, transport, nil
		}
	}
	host, port, err := net.SplitHostPort(hostport)
	if err != nil || port == "" || strings.ContainsAny(host, "/ ") {
		return "", nil, badTarget(target)
	}
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "127.0.0.1"
		if addr.Is6() {
			host = "::1"
		}
	}
	return scheme + "://" + net.JoinHostPort(host, port), transport, nil
}

func badTarget(target string) error {
	return fmt.Errorf("the address of the admin API is %q, must be host and port, such as %s, a URL such as https://throttler.example:9090, or unix:PATH", target, DefaultTarget)
}

// An Error is a refusal of the admin API.
type Error struct {
	// Status is that of the answer.
	Status int
	// Problem says why. It is empty if the answer was no problem: something else listens there.
	Problem Problem
}

func (e *Error) Error() string {
	if e.Problem.Detail == "" {
		return fmt.Sprintf("the admin API answered %d %s", e.Status, http.StatusText(e.Status))
	}
	return e.Problem.Detail
}

// ErrUnreachable is in the error of a request that had no answer.
var ErrUnreachable = errors.New("no admin API")

// A doer sends requests, and makes refusals errors.
type doer struct {
	target, token string
	client        *http.Client
}

func (d *doer) Do(r *http.Request) (*http.Response, error) {
	// An empty field is one that the caller has left out of its parameters.
	maps.DeleteFunc(r.Header, func(_ string, values []string) bool { return len(values) == 1 && values[0] == "" })
	if d.token != "" {
		r.Header.Set("Authorization", "Bearer "+d.token)
	}
	resp, err := d.client.Do(r)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, fmt.Errorf("%w at %s: %w", ErrUnreachable, d.target, err)
	}
	if resp.StatusCode < 400 {
		return resp, nil
	}
	defer resp.Body.Close()
	refused := &Error{Status: resp.StatusCode}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/problem+json" {
		json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&refused.Problem) // if it is none, it stays empty
	}
	return nil, refused
}

// Finished reports whether the state is final.
func (s State) Finished() bool { return s != StateWaiting && s != StateSending && s != StateUnknown }

// Kinds of events: values of [Event.Event].
const (
	EventAccepted = "accepted"
	EventRefused  = "refused"
	EventSending  = "sending"
	EventAttempt  = "attempt"
	EventWaiting  = "waiting"
	EventPaused   = "paused"
	EventResumed  = "resumed"
	EventEnded    = "ended"
	// Of the fleet.
	EventTookOver    = "took_over"
	EventCommitsLost = "commits_lost"

	EventState = "state" // the current state of the call that a subscription names
	EventLost  = "lost"  // its data is a Lost
)

// ConcurrencyLimit is the name of the limit that every upstream has. A pause of it is one of
// the upstream.
const ConcurrencyLimit = "concurrency"
