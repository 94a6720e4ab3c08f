//go:build linux

package nccl

import "unsafe"

// join calls ncclCommInitRankConfig. An id that is passed by value lies on the stack, behind what
// registers do not hold: there are six, of which the others need four.
func join(at uintptr, comm *uintptr, size int, id *ID, rank int, config *layout) int {
	w := (*[16]uintptr)(unsafe.Pointer(id))
	return result(at, uintptr(unsafe.Pointer(comm)), uintptr(size), uintptr(rank), uintptr(unsafe.Pointer(config)), 0, 0,
		w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15])
}
