#include "attention_b.cuh"

// nvrtc: --gpu-architecture=compute_80

// Heads of up to 256 elements. A program has heads of one extent, and loads one of these modules.
KERNEL(FORWARD, 256, 256, 16, 1, 256, 1, true)
KERNEL(GRAD_Q, 256, 128, 16, 1, 256, 1)
KERNEL(GRAD_KV, 256, 64, 16, 1, 256, 1, false)
