package provider

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// The fields of a secret that say how its connections are made, whatever else signs in.
const (
	ClientCertificate = "client_certificate"
	ClientKey         = "client_key"
	ServerCA          = "server_ca"
)

// clientTLS is how the connections of a credential are made: they are its own.
type clientTLS struct {
	// key names it without telling it.
	key string
	// certificate is what we show of us; nil for nothing. ends is when it is good no longer.
	certificate *tls.Certificate
	ends        time.Time
	// ca are authorities that are believed beside those of the system; empty for none.
	ca []byte
}

// newClientTLS reads the fields of a secret; nil where it has none of them. The error wraps ErrSecretShape, and quotes
// nothing.
func newClientTLS(spec *Spec) (*clientTLS, error) {
	certificate, key, ca := spec.Fields[ClientCertificate], spec.Fields[ClientKey], spec.Fields[ServerCA]
	if certificate+key+ca == "" {
		return nil, nil
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{spec.Version, certificate, key, ca}, "\x00")))
	in := &clientTLS{key: hex.EncodeToString(sum[:]), ca: []byte(ca)}
	if spec.Version == "" { // it is stored nowhere, and nobody else has its connections
		in.key = ""
	}
	if ca != "" && !x509.NewCertPool().AppendCertsFromPEM(in.ca) {
		return nil, fmt.Errorf("%w: server_ca must hold certificates in PEM", ErrSecretShape)
	}
	if (certificate == "") != (key == "") {
		return nil, fmt.Errorf("%w: client_certificate and client_key go together", ErrSecretShape)
	}
	if certificate == "" {
		return in, nil
	}
	block, _ := pem.Decode([]byte(certificate))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%w: client_certificate must be a certificate in PEM, "+
			"with those that signed it behind it", ErrSecretShape)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: client_certificate cannot be read as a certificate", ErrSecretShape)
	}
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	switch {
	case err != nil && strings.Contains(err.Error(), "does not match"):
		return nil, fmt.Errorf("%w: client_key is not the key of client_certificate", ErrSecretShape)
	case err != nil:
		return nil, fmt.Errorf("%w: client_key must be a private key in PEM, without a passphrase", ErrSecretShape)
	}
	pair.Leaf, in.certificate, in.ends = leaf, &pair, leaf.NotAfter
	return in, nil
}

// good refuses a certificate that has ended. The error is a *ProbeError.
func (in *clientTLS) good(now time.Time) error {
	if in == nil || in.certificate == nil || now.Before(in.ends) {
		return nil
	}
	refused := probeError(InvalidShape, nil,
		"The client certificate has ended on %s: replace the credential with another one.",
		in.ends.UTC().Format(time.DateOnly))
	refused.kind = Refused
	return refused
}

// CheckCertificate refuses a secret whose client certificate has ended. The error wraps ErrSecretShape.
func CheckCertificate(s Secret, now time.Time) error {
	if err := s.open().tls.good(now); err != nil {
		_, details := Explain(err)
		return fmt.Errorf("%w: %s", ErrSecretShape, details)
	}
	return nil
}

// onlyTLS refuses to send a call where a client certificate is not shown.
func (in *clientTLS) onlyTLS(address string) error {
	if u, err := url.Parse(address); in != nil && in.certificate != nil && (err != nil || u.Scheme != "https") {
		return fmt.Errorf("%w: a client certificate is shown over https alone", ErrParams)
	}
	return nil
}

// refusesClient tells whether a request broke off because the server did not take who we are: with TLS 1.3 that is
// known only after the request went out, over a connection that the server never accepted. Package tls names what a
// server says by its text alone.
func refusesClient(err error) *ProbeError {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return nil
	}
	if said := op.Err.Error(); strings.Contains(said, "certificate") || strings.HasSuffix(said, "access denied") {
		refused := probeError(AuthFailed, err,
			"The server does not take the client certificate, or wants one (%s): check what the credential holds.",
			said)
		refused.kind = Refused
		return refused
	}
	return nil
}

const (
	// maxPools bounds the credentials that have connections of their own at one time, and maxOwn the idle connections
	// of each.
	maxPools, maxOwn = 256, 32
	// poolLife is how long such connections are kept after their last call.
	poolLife = 2 * time.Minute
)

// pools are the connections of credentials that have their own. What has one is nobody else's: who a connection is
// signed in as holds for all that it carries.
type pools struct {
	now  func() time.Time
	mu   sync.Mutex
	held map[poolKey]*pool
}

type poolKey struct{ platform, key string }

type pool struct {
	transport *http.Transport
	users     int
	used      time.Time
}

func newPools(now func() time.Time) *pools { return &pools{now: now, held: map[poolKey]*pool{}} }

// take returns connections like those of base for one call, which calls done behind it.
func (p *pools) take(of *clientTLS, platform string, base *http.Transport) (t *http.Transport, done func(), err error) {
	key := poolKey{platform, of.key}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tidy(p.now())
	found := p.held[key]
	if found == nil || of.key == "" {
		t, err := of.transport(base)
		if err != nil {
			return nil, nil, err
		}
		if of.key == "" || len(p.held) >= maxPools { // all are under way
			return t, t.CloseIdleConnections, nil
		}
		found = &pool{transport: t}
		p.held[key] = found
	}
	found.users++
	return found.transport, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		found.users, found.used = found.users-1, p.now()
	}, nil
}

// tidy closes connections that were not used for a while, and, where there are too many, the oldest that nobody uses.
func (p *pools) tidy(now time.Time) {
	var oldest poolKey
	for key, one := range p.held {
		switch {
		case one.users > 0:
			continue
		case now.Sub(one.used) >= poolLife:
			p.drop(key)
		case p.held[oldest] == nil || one.used.Before(p.held[oldest].used):
			oldest = key
		}
	}
	if len(p.held) >= maxPools && p.held[oldest] != nil {
		p.drop(oldest)
	}
}

func (p *pools) drop(key poolKey) {
	p.held[key].transport.CloseIdleConnections()
	delete(p.held, key)
}

func (p *pools) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.held {
		p.drop(key)
	}
}

// transport is base with connections that are made so.
func (in *clientTLS) transport(base *http.Transport) (*http.Transport, error) {
	t := base.Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = maxOwn, maxOwn
	if in.certificate != nil {
		t.TLSClientConfig.Certificates = []tls.Certificate{*in.certificate}
	}
	if len(in.ca) == 0 {
		return t, nil
	}
	roots := t.TLSClientConfig.RootCAs
	if roots == nil {
		system, err := x509.SystemCertPool()
		if err != nil {
			return nil, probeError(UnknownClass, err, "The certificate authorities of this system cannot be read.")
		}
		roots = system
	}
	roots = roots.Clone()
	roots.AppendCertsFromPEM(in.ca)
	t.TLSClientConfig.RootCAs = roots
	return t, nil
}
