//go:build linux

package nccl

import "unsafe"

// join calls ncclCommInitRankConfig. An id that is passed by value is passed as the address of a
// copy.
func join(at uintptr, comm *uintptr, size int, id *ID, rank int, config *layout) int {
	theirs := *id
	return result(at, uintptr(unsafe.Pointer(comm)), uintptr(size), uintptr(unsafe.Pointer(&theirs)), uintptr(rank), uintptr(unsafe.Pointer(config)))
}
