package config

import (
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A listenAddress is an address to listen on, with the path of its key.
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
	i := slices.IndexFunc(*taken, a.clashes)
	if i >= 0 {
		faults.add(path, "%s is taken by %s; give one of them another port", address, (*taken)[i].path)
	}
	*taken = append(*taken, a)
	return a, i < 0
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
