package doctor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// examineSystem looks at the kernel's limits.
func examineSystem(read func(string) ([]byte, error)) []finding {
	var out []finding
	limit := func(what, name string, judge func(int) finding) {
		n, err := readNumber(read, "/proc/sys/net/core/"+name)
		if err != nil {
			out = append(out, finding{poor, what, fmt.Sprintf("net.core.%s cannot be read: %v", name, err)})
			return
		}
		out = append(out, judge(n))
	}
	for _, name := range []string{"rmem_max", "wmem_max"} {
		limit("udp buffer", name, func(n int) finding { return judgeBuffer(name, n) })
	}
	limit("listen queue", "somaxconn", judgeQueue)
	if n, err := mostDescriptors(); err != nil {
		out = append(out, finding{poor, "descriptors", "their limit cannot be read: " + err.Error()})
	} else {
		out = append(out, judgeDescriptors(n))
	}
	noexec, _ := readNumber(read, "/proc/sys/vm/memfd_noexec") // older systems do not have it
	return append(out, judgeShared(tryMemfile(), noexec))
}

// mostDescriptors is the hard limit: Go's programs, as workers are, raise the soft one to it when
// they start.
func mostDescriptors() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return limit.Max, err
}

// tryMemfile makes a file in memory as package device does, and opens it as a worker that lends it.
func tryMemfile() error {
	fd, err := unix.MemfdCreate("weft-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 1<<12); err != nil {
		return os.NewSyscallError("ftruncate", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return os.NewSyscallError("seal", err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	return f.Close()
}
