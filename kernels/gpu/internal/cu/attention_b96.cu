#include "attention_b.cuh"

// nvrtc: --gpu-architecture=compute_80

// Heads of up to 96 elements. A program has heads of one extent, and loads one of these modules.
KERNEL(FORWARD, 96, 96, 32, 2, 128, 2, true)
KERNEL(GRAD_Q, 96, 96, 32, 1, 256, 1)
KERNEL(GRAD_KV, 96, 96, 16, 1, 256, 1, false)
