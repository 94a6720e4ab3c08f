// Package gpus is tests alone: two processes that share one GPU, and send each other what lies on
// it. Elsewhere it is the interpreter's, one for each process; built with the tags gpu and gpucheck
// it is a real one (package testgpu).
package gpus
