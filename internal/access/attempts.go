package access

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Bounds on wrong tokens, and on logins.
const (
	wrongBurst    = 5 // of an address at once
	wrongInterval = 12 * time.Second
	mostAddresses = 1024
)

// attempts counts wrong tokens, or logins, by address. Its zero value has none.
type attempts struct {
	mu sync.Mutex
	of map[netip.Prefix]*rate.Limiter
}

// allow counts one, and reports whether it is within the bounds.
func (a *attempts) allow(from netip.Prefix, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.of[from]
	if l == nil {
		a.shrink(now)
		l = rate.NewLimiter(rate.Every(wrongInterval), wrongBurst)
		a.of[from] = l
	}
	return l.AllowN(now, 1)
}

// shrink makes room for an address: the addresses without a recent wrong token go, or else
// any one.
func (a *attempts) shrink(now time.Time) {
	if a.of == nil {
		a.of = make(map[netip.Prefix]*rate.Limiter)
	}
	if len(a.of) < mostAddresses {
		return
	}
	for from, l := range a.of {
		if l.TokensAt(now) >= wrongBurst {
			delete(a.of, from)
		}
	}
	for from := range a.of {
		if len(a.of) < mostAddresses {
			return
		}
		delete(a.of, from)
	}
}

// remote returns the address of a client: of IPv6 its network, since one host may have all
// addresses of it. All clients of sockets have the zero Prefix.
func remote(r *http.Request) netip.Prefix {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := at.Addr().Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	from, _ := addr.Prefix(bits) // fails for no such number of bits
	return from
}
