package app

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// certificateEvery is how often handshakes look whether the files of the certificate have changed.
const certificateEvery = 5 * time.Second

// certificate is a pair of files that may be replaced at any time, in one step or one after the other.
type certificate struct {
	front Front
	now   func() time.Time
	log   *slog.Logger

	mu sync.Mutex
	// read is when the files were last read, and seen a digest of what stood in them then; current is the last good
	// pair.
	read    time.Time
	seen    [sha256.Size]byte
	current *tls.Certificate
}

// secured returns a listener that speaks TLS with the certificate of f, if it has one.
func (f Front) secured(listener net.Listener, log *slog.Logger) (net.Listener, error) {
	if listener == nil || !f.secure() {
		return listener, nil
	}
	c := &certificate{front: f, now: time.Now, log: log}
	if err := c.load(); err != nil {
		return listener, fmt.Errorf("%w: see --tls-cert and --tls-key", err)
	}
	return tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS12,
		// HTTP/2 would share a connection between requests, whose bounds are set on connections.
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil },
	}), nil
}

// get returns the pair that the files hold, or held when they were last good.
func (c *certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Sub(c.read) >= certificateEvery {
		if err := c.load(); err != nil {
			c.log.Error("the new certificate is not used; the one before goes on", "error", err)
		}
	}
	return c.current
}

// load reads the files. It fails once for the same broken pair. What stands in them tells whether they changed, since a
// file behind a replaced link may have any time.
func (c *certificate) load() error {
	c.read = c.now()
	cert, certErr := os.ReadFile(c.front.CertFile)
	key, keyErr := os.ReadFile(c.front.KeyFile)
	seen := sha256.Sum256(fmt.Append(nil, string(cert), certErr, string(key), keyErr))
	if seen == c.seen {
		return nil
	}
	c.seen = seen
	if err := errors.Join(certErr, keyErr); err != nil {
		return fmt.Errorf("read the certificate and its key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("use the certificate %s with the key %s: %w", c.front.CertFile, c.front.KeyFile, err)
	}
	c.log.Info("using a certificate", "file", c.front.CertFile, "until", pair.Leaf.NotAfter)
	c.current = &pair
	return nil
}
