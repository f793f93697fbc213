package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of /proc/*/stat on Linux.
const ticksPerSecond = 100

// cost is what the service, the platform that it calls, and Postgres have used so far.
type cost struct {
	service, platform, postgres time.Duration
	wal                         int64
}

func (c cost) minus(d cost) cost {
	return cost{c.service - d.service, c.platform - d.platform, c.postgres - d.postgres, c.wal - d.wal}
}

// cost reads what was used so far: processor time from /proc, write-ahead log from Postgres.
func (e *env) cost(ctx context.Context, s *service) (c cost, err error) {
	var backend int
	err = e.pool.QueryRow(ctx, "SELECT pg_backend_pid(), (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&backend,
		&c.wal)
	if err != nil {
		return c, err
	}
	own, err := readStat(s.pid)
	if err != nil {
		return c, err
	}
	called, err := readStat(s.platform.cmd.Process.Pid)
	if err != nil {
		return c, err
	}
	c.service, c.platform = own.used, called.used
	some, err := readStat(backend)
	if err != nil {
		return c, nil //nolint:nilerr // a server on another host: its processor time is not to be had
	}
	postmaster, err := readStat(some.parent)
	if err != nil {
		return c, err
	}
	c.postgres = postmaster.used + postmaster.reaped
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil && s.parent == some.parent {
			c.postgres += s.used
		}
	}
	return c, nil
}

type stat struct {
	parent       int
	used, reaped time.Duration
}

func readStat(pid int) (s stat, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, err
	}
	// The name in parentheses may hold anything; the fields follow the last one: state, parent, and utime as the
	// twelfth.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		return n
	}
	tick := time.Second / ticksPerSecond
	return stat{int(number(1)), time.Duration(number(11)+number(12)) * tick, time.Duration(number(13)+
		number(14)) * tick}, nil
}

// peakMemory is the largest resident size of a process so far, in MiB, memory its size now.
func peakMemory(pid int) (float64, error) { return size(pid, "VmHWM:") }

func memory(pid int) (float64, error) { return size(pid, "VmRSS:") }

func size(pid int, name string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s of process %d", name, pid)
}

// resetPeak forgets the largest resident size so far.
func resetPeak(pid int) { _ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) }
