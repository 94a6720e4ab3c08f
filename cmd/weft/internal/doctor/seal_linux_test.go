package doctor

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/transport"
)

// An older kernel is played by a filter of system calls, in a process of its own.
func TestWhereMemoryCannotBeSealedDoctorSaysThatItIsNotLent(t *testing.T) {
	const variable = "WEFT_TEST_OLD_KERNEL"
	if os.Getenv(variable) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), variable+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	forbidFutureWrite(t)
	f := examineLane(t.Context(), transport.LaneLocal, true)
	require.Equal(t, poor, f.verdict)
	require.Contains(t, f.text, "this process has no memory to share")
	require.Contains(t, f.text, "does not seal memory against writing by others, as Linux does from 5.1 on")
	require.Contains(t, f.text, "use QUIC and TLS connections instead, which is slower")
}

// forbidFutureWrite has the system refuse F_SEAL_FUTURE_WRITE in this process from now on, as one
// does that does not know it.
func forbidFutureWrite(t *testing.T) {
	const (
		number, command, seals = 0, 16 + 8, 16 + 2*8 // where they are in what a filter sees
		load                   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal                  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		has                    = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		give                   = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{
		{Code: load, K: number},
		{Code: equal, K: unix.SYS_FCNTL, Jf: 5},
		{Code: load, K: command},
		{Code: equal, K: unix.F_ADD_SEALS, Jf: 3},
		{Code: load, K: seals},
		{Code: has, K: unix.F_SEAL_FUTURE_WRITE, Jf: 1},
		{Code: give, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)},
		{Code: give, K: unix.SECCOMP_RET_ALLOW},
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	require.Zero(t, errno)
}
