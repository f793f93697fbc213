package devpg

import (
	"os"
	"syscall"
)

// tryLock takes the whole file for this process; the kernel frees it when the file is closed or the process ends.
func tryLock(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil //nolint:gosec // a descriptor is small
}
