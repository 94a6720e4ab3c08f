package main

import (
	"fmt"

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
	var fs unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &fs); err != nil {
		return append(out, finding{poor, "shared memory", fmt.Sprintf("/dev/shm: %v", err)})
	}
	block := uint64(fs.Bsize)
	return append(out, judgeShared(fs.Blocks*block, fs.Bavail*block))
}
