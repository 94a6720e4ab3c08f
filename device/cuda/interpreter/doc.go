// Package interpreter opens a GPU that is a program: it runs the same PTX as a GPU, on the host's
// processor, about ten thousand times slower. With it, programs for GPUs are tried and tested where
// there is none.
//
// It is stricter than a GPU. A kernel that leaves its memory, or whose threads race for shared
// memory, fails with an error that names the kernel and the line.
package interpreter
