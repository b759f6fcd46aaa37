package upstream

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// mayDial checks the resolved address of a name when it is dialled, so that a
// forged DNS answer cannot direct calls to an inner network. Without Addresses, a
// name may lead to any host except this one, its neighbours on the link and the metadata
// of a cloud; an address in the URL itself, and localhost, are allowed.
func (c *Config) mayDial(host, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := to.Addr().Unmap().WithZone("")
	if len(c.Addresses) > 0 {
		if slices.ContainsFunc(c.Addresses, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return nil
		}
		return fmt.Errorf("address %s of upstream %q is not within addresses", ip, c.Name)
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if literal, err := netip.ParseAddr(host); err == nil && literal.Unmap().WithZone("") == ip || host == "localhost" && ip.IsLoopback() {
		return nil
	}
	if isNear(ip) || isNear(embedded(ip)) {
		return fmt.Errorf("name %q of upstream %q leads to %s, an address of this host or link; list it in addresses if that is meant", host, c.Name, ip)
	}
	return nil
}

// metadata are addresses beyond the link at which clouds keep their secrets.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
}

// isNear reports whether an address is of this host, of its link, of a group of hosts, or
// of a cloud's metadata.
func isNear(ip netip.Addr) bool {
	if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || slices.Contains(metadata, ip) {
		return true
	}
	own, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == ip
	})
}

// embedded returns the IPv4 address to which a gateway translates an IPv6 address: NAT64
// (RFC 6052), 6to4 (RFC 3056), or an IPv4-compatible one (RFC 4291); else the address.
func embedded(ip netip.Addr) netip.Addr {
	b := ip.As16()
	switch {
	case ip.Is4():
	case netip.MustParsePrefix("64:ff9b::/96").Contains(ip), netip.MustParsePrefix("::/96").Contains(ip):
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return ip
}
