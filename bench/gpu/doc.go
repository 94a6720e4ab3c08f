// Command gpucheck says whether Weft is right on a GPU, and how fast: what make gpu-bundle packs, for a machine that has a driver and nothing else.
//
//	gpucheck [-out DIR] [-budget 9m] [-only STEP,…]     everything, from the folder that it lies in; see make gpu-bundle
//	gpucheck device [-device cuda:0]                    what the GPU is, and how long it takes to load each module of kernels
//	gpucheck bench [-device cuda:0] [-only CASE,…]      the benchmarks, a line of JSON each, as bench/torch/gpu.py prints them
//
// The check runs every step as a process of its own with a time limit, goes on after failures, and writes result.json and result.md. It ends with 0
// where all is well, with 1 where something is not or there is no GPU, and with 2 for a wrong command line.
//
// Times are medians of events on the stream of kernels, but for what several processes do. With -device interpreter everything runs on the
// interpreter of PTX, in sizes of no interest, so that nothing here is tried first on a GPU.
package main
