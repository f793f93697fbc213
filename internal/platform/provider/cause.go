package provider

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// causeOf says in a few words where and why a request failed on its way: the name, the connection, its encryption, or
// the answer; empty where nothing can be said. It never holds the path that was called, which may hold secrets.
func causeOf(err error) string {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var header tls.RecordHeaderError
	var op *net.OpError
	var refused *refusedAddressError
	switch {
	case errors.As(err, &refused):
		return clean(refused.why(), maxSaid)
	case errors.As(err, &name) && name.IsNotFound:
		return "the name " + clean(name.Name, maxSaid) + " is not known"
	case errors.As(err, &name):
		return "the name " + clean(name.Name, maxSaid) + " could not be looked up"
	case errors.As(err, &certificate):
		return "the certificate is not accepted: " + clean(strings.TrimPrefix(certificate.Err.Error(), "x509: "),
			maxSaid)
	case errors.As(err, &alert), errors.As(err, &header):
		return "no encrypted connection could be made (TLS)"
	case errors.As(err, &op) && op.Op == "dial" && op.Addr != nil:
		return "no connection to " + op.Addr.String() + whyNot(err)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection was reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed"
	}
	return ""
}

// whyNot says why there is no connection, where the reason has a common name.
func whyNot(err error) string {
	var number syscall.Errno
	var timeout net.Error
	switch {
	case errors.As(err, &number):
		return ": " + number.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return " in time"
	}
	return ""
}
