package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"os"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type fileTLS struct {
	// CA is a PEM file with the only trusted authorities. Default: the system's.
	CA string `key:"ca"`
	// Cert is a PEM file with the client certificate and its chain; Key refers to
	// its private key: file:PATH (mode 0600) or env:NAME.
	Cert string `key:"cert"`
	Key  string `key:"key"`
	// ServerName is the name that the upstream's certificate must have. Default: the
	// URL's host.
	ServerName string `key:"server_name"`
	// Certificates are client certificates for some requests each; the first that fits is
	// used, on connections of its own. 1000 at most.
	Certificates []fileCertificate `key:"certificates"`
	// Otherwise is refuse or default: the treatment of a request that fits none of
	// Certificates. Default refuse; with default it goes by cert and key, or without a certificate.
	Otherwise string `key:"otherwise"`
}

type fileCertificate struct {
	// When is a request expression, true for the requests that the certificate is for.
	When string `key:"when"`
	// Cert and Key are as those of the section above.
	Cert string `key:"cert"`
	Key  string `key:"key"`
}

func (f fileTLS) convert(faults *faultList, path string, to *upstream.Config) {
	oneOf(faults, path+".otherwise", cmp.Or(f.Otherwise, "refuse"), "refuse", "default")
	if f.Otherwise != "" && len(f.Certificates) == 0 && !faults.explained[path+".certificates"] {
		faults.add(path+".otherwise", "means nothing without certificates; give those, or cert and key")
	}
	to.OnlyCertified = f.Otherwise != "default" && len(f.Certificates) > 0
	seen := make(map[string]int)
	for i, c := range f.Certificates {
		at := index(path+".certificates", i)
		if first, twice := seen[c.When]; twice && c.When != "" {
			faults.add(at+".when", "is that of certificates[%d] too, so this one is never used; tell them apart, or remove one", first)
		} else {
			seen[c.When] = i
		}
		if c.Cert == "" && c.Key == "" {
			faults.add(at+".cert", "is missing; give a PEM file with the certificate, and its key")
		}
		to.Certificates = append(to.Certificates, upstream.Certificate{When: c.When, Pair: keyPair(faults, at, c.Cert, c.Key, "servers")})
	}
	if f.CA == "" && f.Cert == "" && f.Key == "" && f.ServerName == "" {
		return
	}
	to.TLS = &tls.Config{ServerName: f.ServerName}
	if f.CA != "" && !faults.closed {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			faults.add(path+".ca", "%w", err)
		} else if to.TLS.RootCAs = x509.NewCertPool(); !to.TLS.RootCAs.AppendCertsFromPEM(text) {
			faults.add(path+".ca", "%s holds no certificate in PEM", f.CA)
		}
	}
	if f.Cert != "" || f.Key != "" {
		to.TLS.Certificates = []tls.Certificate{keyPair(faults, path, f.Cert, f.Key, "servers")}
	}
}

// keyPair reads a certificate and its private key, and warns if it ends soon. The peers are
// those to which it is shown.
func keyPair(faults *faultList, path, cert, key, peers string) (pair tls.Certificate) {
	if cert == "" && key == "" {
		return pair
	}
	if cert == "" || key == "" {
		faults.add(path, "cert and key belong together; give both or neither")
		return pair
	}
	if faults.closed {
		faults.reference(path+".key", key)
		return pair
	}
	text, err := os.ReadFile(cert)
	if err != nil {
		faults.add(path+".cert", "%w", err)
	}
	secret, keyErr := signer.Secret(key)
	if keyErr != nil {
		faults.add(path+".key", "%w", keyErr)
	}
	if err != nil || keyErr != nil {
		return pair
	}
	if pair, err = tls.X509KeyPair(text, []byte(secret)); err != nil {
		faults.add(path+".cert", "%s and the key do not make a pair in PEM", cert)
		return pair
	}
	warnOfEnd(faults, path+".cert", cert, peers, pair.Leaf, time.Now())
	return pair
}

// endsSoon is how long before the end of a certificate the warning of it begins.
const endsSoon = 30 * 24 * time.Hour

// warnOfEnd warns of a certificate that is not valid now, or not for long. It is no fault:
// the other parts of the file work.
func warnOfEnd(faults *faultList, path, file, peers string, leaf *x509.Certificate, now time.Time) {
	switch end := leaf.NotAfter; {
	case now.Before(leaf.NotBefore):
		faults.warn(path, "%s is not valid before %s, by the clock of this host; %s refuse it until then", file, leaf.NotBefore.UTC().Format(time.RFC3339), peers)
	case now.After(end):
		faults.warn(path, "%s has ended on %s, and %s refuse it; put a new one in its place, and reload", file, end.UTC().Format(time.RFC3339), peers)
	case end.Sub(now) < endsSoon:
		faults.warn(path, "%s ends on %s; put a new one in its place before that, and reload", file, end.UTC().Format(time.RFC3339))
	}
}
