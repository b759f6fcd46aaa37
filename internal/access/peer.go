package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

// A peer is the other end of a connection.
type peer struct {
	tls    *tls.Conn                   // nil without TLS
	socket func() (credentials, error) // nil if it is no Unix socket
}

// credentials are those of the process at the other end of a socket, when it connected.
type credentials struct {
	uid  uint32
	gids []uint32
	name string // of the user; its number if it has no name
}

func (c credentials) in(group uint32) bool { return slices.Contains(c.gids, group) }

type peerKey struct{}

// WithConn returns a context with the peer of a connection, for the requests of it.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	for c != nil {
		switch at := c.(type) {
		case *secure:
			return context.WithValue(ctx, peerKey{}, peer{tls: at.Conn})
		case *net.UnixConn:
			return context.WithValue(ctx, peerKey{}, peer{socket: sync.OnceValues(func() (credentials, error) { return credentialsOf(at) })})
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	return ctx
}

func peerOf(r *http.Request) peer {
	p, _ := r.Context().Value(peerKey{}).(peer)
	return p
}

// OverTLS reports whether the client of a request came by TLS.
func OverTLS(r *http.Request) bool { return r.TLS != nil || peerOf(r).tls != nil }

// credentialsOf asks the system for the user of a socket, and for the user's groups.
func credentialsOf(c *net.UnixConn) (credentials, error) {
	uid, gid, err := peerCredentials(c)
	if err != nil {
		return credentials{}, err
	}
	found := credentials{uid, []uint32{gid}, strconv.FormatUint(uint64(uid), 10)}
	u, err := user.LookupId(found.name)
	if err != nil {
		return found, nil // a container may have users without names
	}
	found.name = u.Username
	groups, err := u.GroupIds()
	if err != nil {
		return found, nil
	}
	for _, text := range groups {
		if id, err := strconv.ParseUint(text, 10, 32); err == nil {
			found.gids = append(found.gids, uint32(id))
		}
	}
	return found, nil
}

// certificates returns the certificates that the client has shown, its own one first.
func (p peer) certificates() []*x509.Certificate {
	if p.tls == nil {
		return nil
	}
	return p.tls.ConnectionState().PeerCertificates
}

// byCertificate returns the caller of a client certificate. The certificate is verified
// for each request, as a connection may outlive it, and the authorities of the rules.
func byCertificate(chain []*x509.Certificate, rules *config.Access, now time.Time) (Caller, *Error) {
	if rules.TLS == nil || rules.TLS.ClientCAs == nil {
		return Caller{}, &Error{Reason: Unauthenticated, Detail: "the configuration has no access.tls.client_ca any more, so no client certificate counts; show a token"}
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: rules.TLS.ClientCAs, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Caller{}, &Error{Reason: Unauthenticated, Detail: fmt.Sprintf("the client certificate is not valid: %v", err)}
	}
	for _, entry := range rules.Certificates {
		if entry.Fits(chain[0]) {
			return Caller{entry.Name, Role(entry.Role), "certificate"}, nil
		}
	}
	return Caller{}, &Error{Reason: Unauthenticated, Detail: "the client certificate is valid, but no entry of access.certificates names it; add its URI or DNS name there"}
}
