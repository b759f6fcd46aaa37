package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

var crossOrigin = http.NewCrossOriginProtection()

// foreign returns the refusal of a request that a web page may have made, nil if none has:
// a page of another origin, or of a name that was made to resolve to this host (DNS
// rebinding). A request that comes to a loopback address, or to any if everywhere is set,
// must name a loopback address or one of hosts.
func foreign(r *http.Request, everywhere bool, hosts ...string) error {
	writing := *r
	writing.Method = http.MethodPost // those that read take permits and places too
	if err := crossOrigin.Check(&writing); err != nil {
		return &scheduler.Error{Reason: forbidden, Detail: err.Error()}
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !everywhere && (!ok || !loopback(hostname(local.String()))) {
		return nil
	}
	if host := hostname(r.Host); !loopback(host) && !slices.Contains(hosts, host) {
		return &scheduler.Error{Reason: forbidden, Detail: fmt.Sprintf("the listener answers to %s only; send the request to that name", strings.Join(append([]string{"localhost"}, hosts...), " or "))}
	}
	return nil
}

// hostname returns the host of a Host field in lower case, without its port.
func hostname(hostport string) string {
	return strings.TrimSuffix(strings.ToLower((&url.URL{Host: hostport}).Hostname()), ".")
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
