//go:build !amd64 && !arm64

package callsite

import "runtime"

// stackHash tells call stacks apart by the return addresses of the nearest frames.
func stackHash(frames int) (h uint64) {
	var pcs [deep]uintptr
	for _, pc := range pcs[:runtime.Callers(2, pcs[:frames])] {
		h = (h ^ uint64(pc)) * 0x9E3779B97F4A7C15
		h = h>>29 | h<<35
	}
	return h
}
