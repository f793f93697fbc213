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

// Listen listens at a port of the loopback that was free, and is likely to be so at a later start.
func Listen() (net.Listener, error) {
	for range portTries {
		//nolint:gosec // which one does not matter
		if listener, err := listenAt(firstPort + rand.IntN(lastPort-firstPort+1)); err == nil {
			return listener, nil
		}
	}
	return nil, errors.New("find a free port of the loopback: all that were tried are taken")
}

// FreePort returns a port as Listen has it. While this process starts another one, that may have the port for a moment
// more.
func FreePort() (int, error) {
	listener, err := Listen()
	if err != nil {
		return 0, err
	}
	_ = listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil //nolint:forcetypeassert // it listens by TCP
}

func listenAt(port int) (net.Listener, error) {
	//nolint:wrapcheck // nobody is told why
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

func isFree(port int) bool {
	listener, err := listenAt(port)
	if err != nil {
		return false
	}
	_ = listener.Close()
	return true
}
