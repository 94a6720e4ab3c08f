// Command gpucheck says whether Weft is right on a GPU, and how fast: what make gpu-bundle packs,
// for a machine that has a driver and nothing else.
//
//	gpucheck [-out DIR] [-part first] [-budget 9m] [-only STEP,…]     everything, or a part, from the folder that it lies in; contact.sh starts it
//	gpucheck device [-device cuda:0]                                  what the GPU is, and how long it takes to load each module of kernels
//	gpucheck bench [-device cuda:0] [-only CASE,…]                    the benchmarks, a line of JSON each, as bench/torch/gpu.py prints them
//
// The check never opens the driver itself: every step is a process of its own with a time limit, so
// a driver that hangs or crashes costs one step. A step runs below a process of this program (the
// verb hold), which ends all that the step has started when it ends, or when the check does,
// however. It goes on after failures. It writes result.json and result.md before the first step,
// before and after each, so that they are whole at any time.
//
// A first SIGINT, SIGTERM or SIGHUP ends the step under way and then the check; a second one, or 8
// s, ends it at once. It never takes more than 8 s longer than -budget.
//
// It ends with 0 where all is well, with 1 where something is not, there is no GPU or it was ended,
// with 2 for a wrong command line, and with 3 where the results could not be written.
//
// Times are medians of events on the stream of kernels, but for what several processes do, and of
// work on noise. The table compares each with the fastest that PyTorch has for it
// (bench/torch/gpu.py): in eager mode, compiled, or compiled into CUDA graphs. With -device
// interpreter everything runs on the interpreter of PTX, in sizes of no interest, so that nothing
// here is tried first on a GPU.
package main
