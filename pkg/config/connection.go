package config

import (
	"net/netip"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type fileTimeouts struct {
	// Connect bounds dialling, and the TLS handshake. Default 10s.
	Connect *duration `key:"connect"`
	// Head bounds the wait for the answer's head. Default: timeout.
	Head *duration `key:"head"`
	// Body bounds each wait for more of a streaming body. Default: timeout.
	Body *duration `key:"body"`
	// Idle bounds the life of an idle connection. Default 90s.
	Idle *duration `key:"idle"`
}

type fileInspect struct {
	// Bytes is the number of bytes of an answer's body that the rules can read. Default 1MiB.
	Bytes *size `key:"bytes"`
	// Delay bounds the time that inspection holds an answer back from a waiting caller.
	// Default 1s.
	Delay *duration `key:"delay"`
}

// connection converts the keys that concern connections and the reading of answers.
func (f fileUpstream) connection(faults *faultList, path string, to *upstream.Config) {
	positive(faults, path+".timeout", f.Timeout, &to.Timeout)
	positive(faults, path+".timeouts.connect", f.Timeouts.Connect, &to.ConnectTimeout)
	positive(faults, path+".timeouts.head", f.Timeouts.Head, &to.HeadTimeout)
	positive(faults, path+".timeouts.body", f.Timeouts.Body, &to.BodyTimeout)
	positive(faults, path+".timeouts.idle", f.Timeouts.Idle, &to.IdleTimeout)
	positive(faults, path+".inspect.bytes", f.Inspect.Bytes, &to.MaxInspect)
	positive(faults, path+".inspect.delay", f.Inspect.Delay, &to.InspectDelay)
	to.HTTP1 = f.HTTP2 != nil && !*f.HTTP2
	f.TLS.convert(faults, path+".tls", to)
	for i, text := range f.Addresses {
		prefix, err := netip.ParsePrefix(text)
		if ip, e := netip.ParseAddr(text); e == nil {
			prefix, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		if err != nil {
			faults.add(index(path+".addresses", i), "%q is neither an IP address nor a CIDR such as 10.0.0.0/8", text)
		}
		to.Addresses = append(to.Addresses, prefix)
	}
}
