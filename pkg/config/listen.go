package config

import (
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A listenAddress is an address to listen on, with the path of its key. That of a Unix
// socket has its path as the host, and SocketPrefix as the port.
type listenAddress struct{ path, host, port string }

// listen parses an address and adds it to those taken. It reports false, with a fault,
// if the address is invalid or taken.
func listen(faults *faultList, path, address string, taken *[]listenAddress) (listenAddress, bool) {
	host, port, err := net.SplitHostPort(address)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || strings.ContainsAny(host, " /@") {
		faults.add(path, "%q is not a listen address; write %s", address, intentAddress(address))
		return listenAddress{}, false
	} else if port = strconv.FormatUint(n, 10); host == "localhost" {
		host = "127.0.0.1"
	}
	a := listenAddress{path, host, port}
	return a, a.take(faults, address, taken)
}

// take adds the address to those taken. It reports false, with a fault, if it is taken.
func (a listenAddress) take(faults *faultList, address string, taken *[]listenAddress) bool {
	i := slices.IndexFunc(*taken, a.clashes)
	if i >= 0 {
		faults.add(a.path, "%s is taken by %s; give one of them another %s", address, (*taken)[i].path, a.differs())
	}
	*taken = append(*taken, a)
	return i < 0
}

// differs returns the part of the address by which it differs from others.
func (a listenAddress) differs() string {
	if a.port == SocketPrefix {
		return "path"
	}
	return "port"
}

// clashes reports whether the system cannot listen on both addresses at once. Port 0 is
// a free one each time.
func (a listenAddress) clashes(b listenAddress) bool {
	return a.port == b.port && a.port != "0" && (a.host == b.host || a.all() || b.all())
}

// all reports whether the address is on every interface: Go listens on both
// families for either form.
func (a listenAddress) all() bool {
	ip, err := netip.ParseAddr(a.host)
	return a.host == "" || err == nil && ip.IsUnspecified()
}

func (a listenAddress) loopback() bool {
	ip, err := netip.ParseAddr(a.host)
	return err == nil && ip.IsLoopback()
}

var hostName = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)

// convertHosts returns the names of a listener in lower case.
func convertHosts(faults *faultList, path string, names []string) (hosts []string) {
	for i, name := range names {
		host := strings.TrimSuffix(strings.ToLower(name), ".")
		if _, err := netip.ParseAddr(host); err != nil && !hostName.MatchString(host) {
			faults.add(index(path, i), "%q is not a host name; write it without scheme and port, such as payments.internal", name)
		}
		hosts = append(hosts, host)
	}
	return hosts
}
