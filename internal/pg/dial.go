package pg

import (
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// silentFor is how long a server may be silent on the network before its connection is given up: one that is cut
	// off, or whose machine stands still, ends no connection.
	silentFor = 10 * time.Second
	// pingFor is how long a connection that was idle may take to answer before it is used.
	pingFor = 2 * time.Second
)

// dial makes connections that end when the server has been silent for too long, where the system can tell.
func dial(timeout time.Duration) pgconn.DialFunc {
	d := net.Dialer{Timeout: timeout, Control: endUnacknowledged,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silentFor / 2, Interval: silentFor / 10, Count: 5}}
	return d.DialContext
}
