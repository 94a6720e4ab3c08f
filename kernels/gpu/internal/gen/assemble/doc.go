// Command assemble has NVIDIA's assembler check the kernels that package gen writes, for random
// cases of every instruction:
//
//	go run ./kernels/gpu/internal/gen/assemble -ptxas /usr/local/cuda/bin/ptxas
//
// With -v it prints what the assembler says of registers.
package main
