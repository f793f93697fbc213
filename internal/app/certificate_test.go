package app

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// WriteKeyPair writes a new certificate for a name and its key into a folder.
func WriteKeyPair(t *testing.T, folder, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY",
		Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestCertificate_Replaced: a new pair is used within seconds, as Kubernetes puts it there, by a link to another
// folder. One that does not fit leaves the one before in use, and is told once.
func TestCertificate_Replaced(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	link := filepath.Join(folder, "..data")
	swap := func(name string, change func(cert, key string)) {
		t.Helper()
		version := filepath.Join(folder, name)
		if err := os.Mkdir(version, 0o700); err != nil {
			t.Fatal(err)
		}
		if cert, key := WriteKeyPair(t, version, name); change != nil {
			change(cert, key)
		}
		if err := os.Symlink(version, link+"_tmp"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+"_tmp", link); err != nil {
			t.Fatal(err)
		}
	}
	swap("one", nil)
	now := time.Now()
	var said bytes.Buffer
	c := &certificate{
		front: Front{CertFile: filepath.Join(link, "tls.crt"), KeyFile: filepath.Join(link, "tls.key")},
		now:   func() time.Time { return now }, log: slog.New(slog.NewTextHandler(&said, nil)),
	}
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	want := func(name string, errors int) {
		t.Helper()
		if got := c.get().Leaf.DNSNames[0]; got != name {
			t.Errorf("the certificate is that of %s, not of %s", got, name)
		}
		if n := strings.Count(said.String(), "level=ERROR"); n != errors {
			t.Errorf("it told %d errors, not %d: %s", n, errors, said.String())
		}
	}
	swap("two", nil)
	want("one", 0)
	now = now.Add(certificateEvery)
	want("two", 0)
	swap("mixed", func(cert, _ string) { _ = os.WriteFile(cert, []byte("no PEM"), 0o600) })
	for range 3 {
		now = now.Add(certificateEvery)
		want("two", 1)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now = now.Add(certificateEvery)
		want("two", 2)
	}
	swap("three", nil)
	now = now.Add(certificateEvery)
	want("three", 2)
}
