package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// maxCertificates is the greatest number of client certificates of an upstream: each has
// connections of its own.
const maxCertificates = 1000

// A Certificate is a client certificate for some of an upstream's requests.
type Certificate struct {
	// When is a request expression: the requests that the certificate is for.
	When string
	Pair tls.Certificate
}

// certificates are the client certificates of an upstream, compiled.
type certificates struct {
	list     []certificate
	required bool // a request that fits none of them is refused
}

// A certificate is a Certificate, compiled.
type certificate struct {
	when      *Expr
	transport *transport // its connections show this certificate and no other
}

// compileCertificates compiles the certificates of a config.
func compileCertificates(c Config, base *url.URL, fault func(field string, err error)) (all certificates) {
	all.required = c.OnlyCertified
	switch {
	case len(c.Certificates) == 0 && c.OnlyCertified:
		fault("tls.otherwise", errors.New("is refuse, but no certificates are given, so that every request would be refused; give some"))
	case len(c.Certificates) > 0 && c.Transport != nil:
		fault("tls.certificates", errors.New("are given beside Transport, which has certificates of its own; give one of both"))
		return all
	case len(c.Certificates) > maxCertificates:
		fault("tls.certificates", fmt.Errorf("are %d, must be at most %d; give the others an upstream of their own", len(c.Certificates), maxCertificates))
		return all
	case len(c.Certificates) > 0 && base != nil && base.Scheme != "https":
		fault("tls.certificates", fmt.Errorf("are given, but the URL is %s, where no certificate is shown; write https", base.Scheme))
	}
	for i, given := range c.Certificates {
		var when *Expr
		err := errors.New(`is missing; give the requests that the certificate is for, such as (xml("mch_id") ?? xml("mchid")) == "1900009191"`)
		if given.When != "" {
			when, err = Compile(given.When, Condition)
		}
		fault(fmt.Sprintf("tls.certificates[%d].when", i), err)
		all.list = append(all.list, certificate{when, newTransport(c.with(given.Pair), base)})
	}
	return all
}

// with returns the config with one client certificate.
func (c Config) with(pair tls.Certificate) Config {
	own := &tls.Config{}
	if c.TLS != nil {
		own = c.TLS.Clone()
	}
	own.Certificates, own.GetClientCertificate = []tls.Certificate{pair}, nil
	own.ClientSessionCache = nil // a resumed session has the certificate that it began with
	c.TLS = own
	return c
}

// transport returns the transport of a request: that of its certificate, or the default if
// no certificate fits.
func (c *certificates) transport(r *Request, byDefault http.RoundTripper) (http.RoundTripper, error) {
	if len(c.list) == 0 {
		return byDefault, nil
	}
	own, err := c.choose(NewInput(r))
	if own == nil {
		return byDefault, err
	}
	return own, nil
}

// choose returns the transport with the certificate of a request, nil if none fits.
func (c *certificates) choose(in *Input) (*transport, error) {
	for i, certificate := range c.list {
		fits, err := certificate.when.Bool(in)
		if err != nil {
			return nil, fmt.Errorf("tls.certificates[%d].when: %w", i, err)
		}
		if fits {
			return certificate.transport, nil
		}
	}
	if c.required {
		return nil, errors.New("tls.certificates: none fits the request; add its certificate, or write otherwise: default")
	}
	return nil, nil
}

// close closes idle connections.
func (c *certificates) close() {
	for _, certificate := range c.list {
		certificate.transport.CloseIdleConnections()
	}
}
