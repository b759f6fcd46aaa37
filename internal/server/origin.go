package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

var crossOrigin = http.NewCrossOriginProtection()

// crossSite returns the refusal of a request that a web page of another origin has made.
// Methods that only read are refused too: a request takes a permit of the upstream, or a
// subscription to events.
func crossSite(r *http.Request) error {
	writing := *r
	writing.Method = http.MethodPost
	if err := crossOrigin.Check(&writing); err != nil {
		return &scheduler.Error{Reason: forbidden, Detail: err.Error()}
	}
	return nil
}

// isLink reports whether a person has followed a link, such as one of a chat or a pager:
// the page that has it sees nothing of the answer.
func isLink(r *http.Request) bool {
	h := r.Header
	return r.Method == http.MethodGet && h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" && h.Get("Sec-Fetch-User") == "?1"
}

// rebound returns the refusal of a request by a name that was made to resolve to this host
// (DNS rebinding), nil if its name is known. A request that comes to a loopback address, or
// to any if everywhere is set, must name a loopback address or one of names. Every browser
// names a host.
func rebound(r *http.Request, everywhere bool, names func() []string) error {
	if !everywhere && !access.ToLoopback(r) {
		return nil
	}
	host := access.Hostname(r.Host)
	if host == "" || access.IsLoopback(host) {
		return nil
	}
	if hosts := names(); !slices.Contains(hosts, host) {
		return &scheduler.Error{Reason: forbidden, Detail: fmt.Sprintf("the listener answers to %s only; send the request to that name", strings.Join(append([]string{"localhost"}, hosts...), " or "))}
	}
	return nil
}
