package devpg

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports that are kept from one start to the next are taken below those that a kernel gives to connections (Linux: from
// 32,768; macOS, Windows: from 49,152): while nobody listens, no connection of another program takes one.
const (
	firstPort = 20_000
	lastPort  = 32_767
	portTries = 100
)

// FreePort returns a port of the loopback that is free now, and likely to be so at a later start.
func FreePort() (int, error) {
	for range portTries {
		//nolint:gosec // which one does not matter
		if port := firstPort + rand.IntN(lastPort-firstPort+1); isFree(port) {
			return port, nil
		}
	}
	return 0, errors.New("find a free port of the loopback: all that were tried are taken")
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = listener.Close()
	return true
}
