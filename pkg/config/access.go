package config

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Access says who may use the admin API, beside the addresses that it listens on.
type Access struct {
	// Hosts are names, in lower case, by which requests may name the admin API.
	Hosts []string
	// Anyone is the role of a caller that shows nothing, empty for none.
	Anyone       string
	Tokens       []Token
	Certificates []CallerCertificate
	Sockets      []Socket
	// Session is the longest time that a login of a browser lasts.
	Session time.Duration
	// TLS is nil if the addresses are reached without.
	TLS *tls.Config
}

// Bounds of the session of a browser.
const (
	DefaultSession = 12 * time.Hour
	minSession     = time.Minute
	maxSession     = 30 * 24 * time.Hour
)

// Roles of callers, the one that may do least first.
var Roles = []string{"viewer", "submitter", "operator", "admin"}

// A Token is a caller that shows a secret text.
type Token struct {
	Name, Role string
	Sums       [][sha256.Size]byte // of the text, and of the one that replaces it
}

// A CallerCertificate is a caller that shows a client certificate.
type CallerCertificate struct {
	Name, Role string
	URI, DNS   string // a subject alternative name; one of them is empty
}

// Fits reports whether a certificate has the name.
func (c CallerCertificate) Fits(leaf *x509.Certificate) bool {
	if c.DNS != "" {
		return slices.ContainsFunc(leaf.DNSNames, func(name string) bool { return strings.EqualFold(name, c.DNS) })
	}
	return slices.ContainsFunc(leaf.URIs, func(u *url.URL) bool { return u.String() == c.URI })
}

// A Socket is the callers that come by a Unix socket as a user, or as one of a group.
type Socket struct {
	Group bool
	ID    uint32
	Role  string
}

type fileAccess struct {
	// Hosts are names, without ports, that a request may name beside the addresses of the
	// listener.
	Hosts []string `key:"hosts"`
	// Anyone is the role of a caller that shows nothing. Default: it may do nothing.
	Anyone string `key:"anyone"`
	// Tokens are callers that send Authorization: Bearer with a secret text.
	Tokens []fileToken `key:"tokens"`
	// Certificates are callers with a client certificate of tls.client_ca.
	Certificates []fileCallerCertificate `key:"certificates"`
	// Sockets are callers by Unix sockets; the first that fits is used.
	Sockets []fileSocket `key:"sockets"`
	// Session is the longest time that a login of a browser lasts. Default 12h.
	Session *duration     `key:"session"`
	TLS     fileAccessTLS `key:"tls"`
}

type fileToken struct {
	// Name is shown in the log and in the audit.
	Name string `key:"name"`
	Role string `key:"role"`
	// SHA256 is the hash of the token, 64 hex digits, as throttler token new prints it; a
	// list of two while one token replaces another.
	SHA256 sums `key:"sha256"`
}

type fileCallerCertificate struct {
	Name string `key:"name"`
	Role string `key:"role"`
	// URI or DNS is the subject alternative name of the certificate.
	URI string `key:"uri"`
	DNS string `key:"dns"`
}

type fileSocket struct {
	// User or Group is a name of this host, or a number.
	User  string `key:"user"`
	Group string `key:"group"`
	Role  string `key:"role"`
}

type fileAccessTLS struct {
	// Cert is a PEM file with the certificate of the admin API and its chain; Key refers to
	// its private key: file:PATH (mode 0600) or env:NAME.
	Cert string `key:"cert"`
	Key  string `key:"key"`
	// ClientCA is a PEM file with the authorities of client certificates.
	ClientCA string `key:"client_ca"`
}

func (f *fileAccess) convert(faults *faultList) *Access {
	if f == nil {
		return nil
	}
	a := &Access{Hosts: convertHosts(faults, "access.hosts", f.Hosts), Anyone: f.Anyone, Session: DefaultSession, TLS: f.TLS.convert(faults)}
	if f.Session != nil {
		a.Session = time.Duration(*f.Session)
		if a.Session < minSession || a.Session > maxSession {
			faults.add("access.session", "is %v, must be between %v and %v; a shift such as 12h is usual", a.Session, minSession, maxSession)
		}
	}
	switch f.Anyone {
	case "":
	case "submitter":
		faults.add("access.anyone", "cannot be submitter: a submitter sees the calls of its name, and callers that show nothing have none; give them tokens")
	default:
		oneOf(faults, "access.anyone", f.Anyone, Roles...)
	}
	names := make(map[string]string)
	for i, t := range f.Tokens {
		a.Tokens = append(a.Tokens, t.convert(faults, index("access.tokens", i), names))
	}
	repeatedSums(faults, a.Tokens)
	clear(names)
	for i, c := range f.Certificates {
		a.Certificates = append(a.Certificates, c.convert(faults, index("access.certificates", i), names))
	}
	if len(f.Certificates) > 0 && f.TLS.ClientCA == "" {
		faults.add("access.certificates", "need access.tls.client_ca, the authorities that have issued them")
	}
	for i, s := range f.Sockets {
		a.Sockets = append(a.Sockets, s.convert(faults, index("access.sockets", i)))
	}
	if a.Anyone == "" && len(f.Tokens) == 0 && len(f.Certificates) == 0 && len(f.Sockets) == 0 {
		faults.warn("access", "names no caller, so the admin API refuses everything but probes; make a token with: throttler token new NAME --role admin")
	}
	return a
}

// callerName matches the names of callers.
var callerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// caller checks the name and the role of an entry. An entry of another list may have the
// same name: it is then the same caller.
func caller(faults *faultList, path, name, role string, names map[string]string) {
	if err := CheckCallerName(name); err != nil {
		faults.add(path+".name", "%w", err)
	} else if other := names[name]; other != "" {
		faults.add(path+".name", "%s is the name of %s too; give one of them another name", name, other)
	}
	names[name] = path
	convertRole(faults, path, role)
}

// CheckCallerName returns the fault of a name that no caller may have.
func CheckCallerName(name string) error {
	switch {
	case name == "":
		return errors.New("is missing; give the name of the caller for the log and the audit")
	case strings.HasPrefix(name, TokenPrefix):
		return errors.New("is a token (not shown), must be the name of its caller; make a new token, since this one was in a file")
	case name == "loopback":
		return errors.New("is loopback, the name of callers without access; take another one")
	case !callerName.MatchString(name):
		return fmt.Errorf("is %q; write up to 64 letters, digits and . _ @ -, a letter or a digit first", name)
	}
	return nil
}

func convertRole(faults *faultList, path, role string) {
	if role == "" {
		faults.add(path+".role", "is missing; it is one of: %s", strings.Join(Roles, ", "))
		return
	}
	oneOf(faults, path+".role", role, Roles...)
}

func (f fileToken) convert(faults *faultList, path string, names map[string]string) Token {
	caller(faults, path, f.Name, f.Role, names)
	t := Token{Name: f.Name, Role: f.Role}
	if len(f.SHA256.all) == 0 {
		faults.add(path+".sha256", "is missing; make a token with: throttler token new NAME, which prints the line for this list")
	}
	for _, text := range f.SHA256.all {
		sum, err := hex.DecodeString(text)
		switch {
		case strings.HasPrefix(text, TokenPrefix):
			faults.add(path+".sha256", "is a token itself (not shown), must be its SHA-256; make a new token with throttler token new, since this one was in a file, and write the line that it prints")
		case err != nil || len(sum) != sha256.Size:
			faults.add(path+".sha256", "is no SHA-256 (the value is not shown): it has 64 hex digits; throttler token new prints it")
		default:
			t.Sums = append(t.Sums, [sha256.Size]byte(sum))
		}
	}
	return t
}

// TokenPrefix begins each token that throttler token new makes, so that searches for
// secrets find it.
const TokenPrefix = "thr_"

// repeatedSums reports hashes that are there twice: the second entry would never be used.
func repeatedSums(faults *faultList, tokens []Token) {
	seen := make(map[[sha256.Size]byte]int)
	for i, t := range tokens {
		for _, sum := range t.Sums {
			if first, twice := seen[sum]; twice {
				faults.add(index("access.tokens", i)+".sha256", "is that of tokens[%d] too; make a token for each caller", first)
			}
			seen[sum] = i
		}
	}
}

func (f fileCallerCertificate) convert(faults *faultList, path string, names map[string]string) CallerCertificate {
	caller(faults, path, f.Name, f.Role, names)
	switch u, err := url.Parse(f.URI); {
	case f.URI == "" && f.DNS == "":
		faults.add(path+".uri", "is missing; give uri or dns, the subject alternative name of the certificate")
	case f.URI != "" && f.DNS != "":
		faults.add(path, "has uri and dns; give one of them, or make two entries")
	case f.URI != "" && (err != nil || u.Scheme == "" || u.Host == "" || u.User != nil):
		faults.add(path+".uri", "is not a URI with a scheme and a host, such as spiffe://pay/ops")
	}
	return CallerCertificate(f)
}

func (f fileSocket) convert(faults *faultList, path string) Socket {
	convertRole(faults, path, f.Role)
	s := Socket{Group: f.Group != "", Role: f.Role}
	var err error
	switch {
	case f.User == "" && f.Group == "":
		faults.add(path, "names no user and no group; give one of them")
	case f.User != "" && f.Group != "":
		faults.add(path, "has user and group; give one of them, or make two entries")
	case faults.closed:
	case s.Group:
		if s.ID, err = groupID(f.Group); err != nil {
			faults.add(path+".group", "%q is no group of this host; give its name or its number", f.Group)
		}
	default:
		if s.ID, err = userID(f.User); err != nil {
			faults.add(path+".user", "%q is no user of this host; give the name or the number", f.User)
		}
	}
	return s
}

// userID and groupID take a name of this host, or a number, which may be of another one.
func userID(name string) (uint32, error) {
	if u, err := user.Lookup(name); err == nil {
		name = u.Uid
	}
	id, err := strconv.ParseUint(name, 10, 32)
	return uint32(id), err
}

func groupID(name string) (uint32, error) {
	if g, err := user.LookupGroup(name); err == nil {
		name = g.Gid
	}
	id, err := strconv.ParseUint(name, 10, 32)
	return uint32(id), err
}

func (f fileAccessTLS) convert(faults *faultList) *tls.Config {
	const path = "access.tls"
	if f.Cert == "" && f.Key == "" {
		if f.ClientCA != "" {
			faults.add(path+".cert", "is missing; client certificates need TLS: give the certificate of the admin API, and its key")
		}
		return nil
	}
	to := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		Certificates: []tls.Certificate{keyPair(faults, path, f.Cert, f.Key, "clients")},
	}
	if f.ClientCA == "" || faults.closed {
		return to
	}
	to.ClientAuth = tls.VerifyClientCertIfGiven // a caller may show a token instead
	text, err := os.ReadFile(f.ClientCA)
	if err != nil {
		faults.add(path+".client_ca", "%w", err)
	} else if to.ClientCAs = x509.NewCertPool(); !to.ClientCAs.AppendCertsFromPEM(text) {
		faults.add(path+".client_ca", "%s holds no certificate in PEM", f.ClientCA)
	}
	return to
}
