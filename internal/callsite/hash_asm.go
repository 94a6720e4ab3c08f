//go:build amd64 || arm64

package callsite

// stackHash tells call stacks apart by the return addresses of the nearest frames, in some
// nanoseconds: it follows the frame pointers, where runtime.Callers decodes tables. It is assembly
// because nothing may move the stack meanwhile.
//
//go:noescape
func stackHash(frames int) uint64
