package provider

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"code.dny.dev/ssrf"
)

// anyPort stands for all ports of a host that the operator allows.
const anyPort = "*"

// hosts are the addresses that the operator allows, "host:port" or "host:*" in lower case.
type hosts map[string]bool

func newHosts(list []string) hosts {
	h := hosts{}
	for _, host := range list {
		h[strings.ToLower(host)] = true
	}
	return h
}

// has tells whether an address is allowed, as a URL names it: "host:port".
func (h hosts) has(address string) bool {
	address = strings.ToLower(address)
	if h[address] {
		return true
	}
	at := strings.LastIndexByte(address, ':')
	return at >= 0 && h[address[:at+1]+anyPort]
}

// CheckHost says what is wrong with a "host:port" that somebody allows, and what would be right.
func CheckHost(text string) error {
	host, port, err := net.SplitHostPort(text)
	switch n, numErr := strconv.ParseUint(port, 10, 16); {
	case strings.Contains(text, "/"):
		return fmt.Errorf("%q is no HOST:PORT: leave out the scheme and the path, as in 127.0.0.1:3000", text)
	case err != nil && net.ParseIP(strings.Trim(text, "[]")) != nil:
		example := net.JoinHostPort(strings.Trim(text, "[]"), "3000")
		return fmt.Errorf("%q names no port: write %s, or %s for all its ports", text, example,
			strings.TrimSuffix(example, "3000")+anyPort)
	case err != nil || host == "" || port == "":
		return fmt.Errorf("%q is no HOST:PORT: write it as 127.0.0.1:3000, or as 127.0.0.1:* for all ports", text)
	case port != anyPort && (numErr != nil || n == 0):
		return fmt.Errorf("%q names no port from 1 to 65535: write it as %s:3000, or as %s:* for all ports", text, host,
			host)
	}
	return nil
}

// refusedAddressError is an ErrAddressRefused that names the address, as the URL does, and says why it is refused.
type refusedAddressError struct {
	address string
	cause   error
}

func (e *refusedAddressError) Error() string { return ErrAddressRefused.Error() + ": " + e.why() }

func (e *refusedAddressError) Unwrap() []error { return []error{ErrAddressRefused, e.cause} }

// why says what is wrong with the address and what its operator can do. It does not say what a name stands for.
func (e *refusedAddressError) why() string {
	host, port, err := net.SplitHostPort(e.address)
	if err != nil {
		host = e.address
	}
	ip := net.ParseIP(host)
	what := host + " is private"
	switch local := host == "localhost" || ip != nil && (ip.IsPrivate() || ip.IsLoopback() ||
		ip.IsLinkLocalUnicast()); {
	case local:
	case errors.Is(e.cause, ssrf.ErrProhibitedPort):
		what = "port " + port + " is neither 80 nor 443"
	case ip != nil:
		what = host + " is in a network that must not be called"
	}
	return what + ": start with --allow-host " + e.address
}
