package app

import (
	"cmp"
	"fmt"
)

// How many connections to Postgres a process has: 20 processes as they come stay under 200.
const (
	defaultConns = 9
	leastConns   = 6
	// leaseConns are the most that keep leases and fetch jobs.
	leaseConns = 6
)

func (cfg *Config) checkConns() error {
	if cfg.MaxConns != 0 && cfg.MaxConns < leastConns {
		return fmt.Errorf("%d connections are too few: set FLOWLANE_MAX_CONNS to %d or more", cfg.MaxConns, leastConns)
	}
	return nil
}

// conns divides the connections of a process: those for requests and work, and those that keep leases and fetch jobs,
// so that busy handlers cannot starve them. One more listens for jobs, beside both.
func (cfg *Config) conns() (work, leases int) {
	all := cmp.Or(cfg.MaxConns, defaultConns)
	if cfg.Workers && !cfg.Pooled {
		all--
	}
	leases = min(max(all/3, 2), leaseConns)
	return all - leases, leases
}
