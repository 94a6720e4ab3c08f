// Package nvtx tells NVIDIA's profilers what a program does, as ranges of time: a profiler names a
// library in NVTX_INJECTION64_PATH, which is opened at the first range. Without it there are none,
// and asking costs some nanoseconds.
//
// It speaks version 3 of NVTX's interface to profilers, which that names only: the header that
// programs in C include is not needed.
package nvtx
