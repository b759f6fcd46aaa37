package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Addressed returns an [Error] if a request names a host that is not the listener's: a name
// that was made to resolve to this host (DNS rebinding), for instance. The listener's are
// localhost, loopback addresses, the address at which the request came, and the hosts of
// the rules. Every browser names a host, and none reaches a socket.
func (g *Guard) Addressed(r *http.Request) error {
	host := Hostname(r.Host)
	if host == "" || IsLoopback(host) || bySocketFile(r) || g.own != nil && g.rules.Load() == nil {
		return nil
	}
	var hosts []string
	if rules := g.rules.Load(); rules != nil {
		hosts = rules.Hosts
	}
	if slices.Contains(hosts, host) || isLocal(r, host) {
		return nil
	}
	names := strings.Join(append([]string{"localhost", "its address"}, hosts...), " or ")
	return &Error{Reason: Misdirected, Detail: fmt.Sprintf("the listener answers to %s only; send the request to one of them, or add the name to access.hosts", names)}
}

// bySocketFile reports whether a request came by a Unix socket.
func bySocketFile(r *http.Request) bool {
	_, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok || peerOf(r).socket != nil
}

// isLocal reports whether a host is the address at which a request came.
func isLocal(r *http.Request, host string) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddr(host)
	return err == nil && at.Unmap().WithZone("") == local.AddrPort().Addr().Unmap().WithZone("")
}

// ToLoopback reports whether a request came to a loopback address.
func ToLoopback(r *http.Request) bool {
	switch local := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return local.IP.IsLoopback()
	case net.Addr:
		return IsLoopback(Hostname(local.String()))
	}
	return false
}

// Hostname returns the host of a Host field in lower case, without its port.
func Hostname(hostport string) string {
	return strings.TrimSuffix(strings.ToLower((&url.URL{Host: hostport}).Hostname()), ".")
}

// IsLoopback reports whether a host is localhost or a loopback address.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
