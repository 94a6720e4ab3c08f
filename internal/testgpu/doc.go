// Package testgpu gives tests the GPU that they run on: the interpreter's, or in a build with the
// tags gpu and gpucheck the real one that WEFT_GPU numbers (0 without; there too it may be
// interpreter). So a test of what runs on GPUs is written once. Tests that are about the
// interpreter itself, or about a fake driver, do not use it.
package testgpu
