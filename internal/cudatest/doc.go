// Package cudatest is the conformance suite of cuda.Driver: a new driver adds only its constructor.
//
// A driver must be able to load the text of testdata/kernels.ptx ([Kernels]) and run its kernels,
// of which a library that only pretends may do the work itself, by name; testdata/kernels.cu says
// what each computes:
//
//	weft_fill(out, value, n)    3 parameters: address, 4 bytes, 4 bytes
//	weft_mix(a, b, out, n)      addresses, 4 bytes
//	weft_sum(in, out)           addresses; 4 bytes of dynamic shared memory for each thread; a power of two of threads
//	weft_wild(value)            a fault, asked for only with [Suite.Faults]
//
// What the suite asks of a driver is in its tests' names. Where a driver may refuse something when
// it is submitted or tell of it later, either will do.
package cudatest
