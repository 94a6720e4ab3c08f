// Package fakecuda builds a libcuda.so.1 whose GPUs are this host, for tests of package native and
// of what stands on it. It needs the build tag gpu and a C compiler.
//
// Its memory is where the host cannot reach it by the same address, starts as NaNs, and can be
// shared with other processes; what is copied must be pinned; its streams are threads, so that what
// is not waited for has not happened; it records graphs, runs out of memory and fails when it is
// told. Kernels are run by a [Machine], and without one do nothing. The same library is a cuBLASLt
// of plain loops.
//
// Any of its calls can be had to hang, to crash or to fail ([Library.Plant], or [PlantEnv] for
// another process), and what was not given back is counted.
package fakecuda
