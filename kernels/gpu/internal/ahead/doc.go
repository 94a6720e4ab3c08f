// Package ahead holds machine code of generated kernels (package gen), for the cases of the
// examples and of the benchmark's networks at their own sizes, so that a driver has nothing to
// compile before their first step. Kernels are found by their text, whatever program asks for them:
// one that no example has is compiled by the driver.
//
// testdata/*.ptx has the texts, a file for each program. The test of a program writes its own (go
// test -run CompilesNothing -write-texts, in its folder), and `go run
// ./kernels/gpu/internal/cu/build` makes archives of machine code of all, which programs embed.
package ahead
