package provider

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"flowlane/internal/platform/catalog"
)

// mayGo keeps a secret from all addresses but those that it is meant for: whoever writes a flow, or its input, chooses
// addresses.
func (in *secret) mayGo(svc *catalog.Service, base, address string) error {
	origin := Origin(address)
	own := in.platformID == svc.PlatformID && origin == Origin(base)
	if origin != "" && (own || slices.Contains(in.origins, origin)) {
		return nil
	}
	if len(in.origins) == 0 {
		return fmt.Errorf("%w: the credential is of platform %s and goes to no other", ErrParams, in.platformID)
	}
	return fmt.Errorf("%w: the credential is of platform %s and goes only to %s, its allowed_origins", ErrParams,
		in.platformID, listed(in.origins))
}

// maxListed is how many origins an error names.
const maxListed = 3

func listed(origins []string) string {
	if more := len(origins) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(origins[:maxListed], ", "), more)
	}
	return strings.Join(origins, ", ")
}

// Origin is the scheme and host of an address, with the port where it is unusual; empty for what is no whole address,
// or names its host in letters beyond ASCII.
func Origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || !isASCII(u.Host) {
		return ""
	}
	host := strings.ToLower(u.Host)
	switch u.Scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	return u.Scheme + "://" + host
}

// OriginOf is the origin of a service of the platform when a call carries the secret, with "*" for what only the
// secret's fields tell where spec has none, and for what only the answer with its token tells. The error is a
// *catalog.LabelError.
func (spec *Spec) OriginOf(svc *catalog.Service) (string, error) {
	base, err := svc.Address(spec.known())
	if err != nil {
		return "", err
	}
	if spec.Method == "aws_access_key" && spec.Endpoint != "" {
		base = spec.Endpoint
	}
	return Origin(base), nil
}

// Fits tells whether the secret's fields fill the labels of a pattern of the service's platform. The error is a
// *catalog.LabelError.
func (spec *Spec) Fits(svc *catalog.Service, pattern string) error {
	_, err := svc.Located(pattern, spec.known())
	return err
}

// The errors of ParseOrigin; they say what would be right.
var (
	errNoOrigin   = errors.New("must be an origin, https://HOST or https://HOST:PORT, and nothing behind it")
	errOriginHost = errors.New("must name its host in ASCII as DNS knows it, an international name in its xn-- " +
		"form, or as an IP address")
	errOriginHTTP = errors.New("must be https; http is for hosts that the operator allows")
)

// ParseOrigin reads an origin that somebody wrote, in the form that Origin gives to addresses. It is https, or http for
// one of the hosts in allowed, each "host:port" or "host:*".
func ParseOrigin(text string, allowed []string) (string, error) {
	if !isASCII(text) {
		return "", errOriginHost
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || !strings.EqualFold(text,
		u.Scheme+"://"+u.Host) {
		return "", errNoOrigin
	}
	port, err := portOf(u)
	if err != nil {
		return "", err
	}
	host := strings.ToLower(u.Hostname())
	if strings.HasPrefix(u.Host, "[") {
		ip, err := netip.ParseAddr(host)
		if err != nil || ip.Zone() != "" {
			return "", errOriginHost
		}
	} else if name, err := idna.Registration.ToASCII(host); err != nil || name != host || strings.HasSuffix(host, ".") {
		return "", errOriginHost
	}
	at := strings.TrimSuffix(strings.ToLower(u.Host), ":"+u.Port()) + ":" + port
	if u.Scheme == "http" && !newHosts(allowed).has(at) {
		return "", errOriginHTTP
	}
	return Origin(text), nil
}

// portOf is the port of an origin, named or usual.
func portOf(u *url.URL) (string, error) {
	port := u.Port()
	switch {
	case strings.HasSuffix(u.Host, ":"):
		return "", errNoOrigin
	case port == "" && u.Scheme == "http":
		return "80", nil
	case port == "":
		return "443", nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return "", errNoOrigin
	}
	return port, nil
}
