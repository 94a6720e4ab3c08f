#include "attention_b.cuh"

// nvrtc: --gpu-architecture=compute_80

// Heads of up to 128 elements. A program has heads of one extent, and loads one of these modules.
KERNEL(FORWARD, 128, 128, 32, 2, 128, 2, false)
KERNEL(GRAD_Q, 128, 128, 32, 1, 256, 1)
KERNEL(GRAD_KV, 128, 128, 16, 1, 256, 1, false)
