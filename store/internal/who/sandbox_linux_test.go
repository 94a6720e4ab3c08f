package who

import (
	"context"
	"net"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

// sandboxed forbids this process netlink, as the sandboxes of many a container do, and gives whose
// both ends of a connection with itself are.
func sandboxed(c context.Context, _ struct{}) (owners [2]int, err error) {
	if err := forbidNetlink(); err != nil {
		return owners, err
	}
	l, err := new(net.ListenConfig).Listen(c, "tcp", "127.0.0.1:0")
	if err != nil {
		return owners, err
	}
	defer l.Close()
	client, err := new(net.Dialer).DialContext(c, "tcp", l.Addr().String())
	if err != nil {
		return owners, err
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		return owners, err
	}
	defer server.Close()
	if _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM, netlinkDiag); err != unix.EPERM { //nolint:errorlint // an errno
		return owners, os.NewSyscallError("socket", err)
	}
	for i, nc := range []net.Conn{client, server} {
		if owners[i], err = UID(nc); err != nil {
			return owners, err
		}
	}
	return owners, nil
}

// forbidNetlink has every thread's socket(AF_NETLINK, …) fail.
func forbidNetlink() error {
	runtime.LockOSThread() // this thread's privileges count
	defer runtime.UnlockOSThread()
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	answer := func(value uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value} }
	filter := []unix.SockFilter{ // the number of the call, and the low half of its first argument on a little-endian machine
		load(0), unless(unix.SYS_SOCKET, 3), load(16), unless(unix.AF_NETLINK, 1),
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)), answer(unix.SECCOMP_RET_ALLOW),
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}

func TestWhereNetlinkIsForbiddenTheKernelsTablesSayWhoseAConnectionIs(t *testing.T) {
	for uid, p := range map[int]*proctest.Proc{os.Geteuid(): proctest.Start(t, nil), proctest.Nobody: proctest.StartStranger(t, nil)} {
		var owners [2]int
		require.NoError(t, p.Ask(t.Context(), "sandboxed", struct{}{}, &owners))
		require.Equal(t, [2]int{uid, uid}, owners)
	}
}
