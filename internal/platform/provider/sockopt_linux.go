package provider

import "syscall"

// tcpNotSentLowat is TCP_NOTSENT_LOWAT, which package syscall does not name.
const tcpNotSentLowat = 25

// limitUnsent keeps the kernel from taking much more of a body than it can send at once: what lies in its queue would
// go out even while this process is stopped. Without the option the call works all the same, so that an error is no
// reason to fail.
func limitUnsent(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, 128<<10)
	})
}
