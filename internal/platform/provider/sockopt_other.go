//go:build unix && !linux

package provider

import "syscall"

// limitUnsent does nothing where the kernel has no such option under a common name.
func limitUnsent(syscall.RawConn) {}
