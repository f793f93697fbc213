package pg

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// endUnacknowledged has a connection end on which what was sent is not acknowledged. Without it the system sends it
// again for a quarter of an hour, during which it asks nothing.
func endUnacknowledged(network, _ string, c syscall.RawConn) (err error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	control := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silentFor.Milliseconds()))
	})
	if control != nil {
		err = control
	}
	if err != nil {
		return fmt.Errorf("bound how long a server may be silent: %w", err)
	}
	return nil
}
