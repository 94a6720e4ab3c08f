// Package places names where gpucheck computes: on a GPU, or on the interpreter of PTX.
package places
