#include "attention_b.cuh"

// nvrtc: --gpu-architecture=compute_80

// Heads of up to 64 elements. A program has heads of one extent, and loads one of these modules.
KERNEL(FORWARD, 64, 64, 64, 2, 128, 2, true)
KERNEL(GRAD_Q, 64, 64, 32, 2, 128, 2)
PLAIN(GRAD_KV, 64, 64, 16, 2, 128, 2, false)
WITH_MORE(GRAD_KV, 64, 64, 32, 1, 256, 1, true)
