//go:build (darwin || freebsd || linux) && (amd64 || arm64)

// Command build compiles the CUDA sources of package cu to archives of PTX, by NVRTC 11.8, or 12.9
// for those that are for compute capability 9.0 alone, and that to archives of cubins, by ptxas
// 12.9, as it does the texts of package ahead. Of the sources of tests (testdata) it writes PTX to
// files beside them. With -check it compares instead. It refuses kernels that lack registers, but
// in float64, and products of four warps that the assembler would slow down. All is committed, so
// that nobody who builds or runs Weft needs a toolkit. It needs no GPU and no CUDA driver.
package main
