package devpg

import "syscall"

// processAttr puts the server in a process group of its own, so that an interrupt typed at a terminal reaches it
// through us, and has the kernel signal it when the thread that started it ends.
func processAttr(death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death}
}
