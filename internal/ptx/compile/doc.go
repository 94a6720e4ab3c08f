// Package compile turns the entries of a PTX module into kernels for package simt. [Kernel] makes
// one function of each instruction, which does it for all lanes of a warp. Functions that are
// called are put in the place of the call, and registers that do not live at the same time share a
// place.
//
// An instruction that is not understood is an error, which names its line.
package compile
