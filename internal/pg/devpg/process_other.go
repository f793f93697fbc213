//go:build unix && !linux

package devpg

import "syscall"

// processAttr puts the server in a process group of its own. This system cannot end it with its parent: a server that a
// killed parent left is ended by the next start.
func processAttr(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
