#include "attention_b.cuh"

// nvrtc: --gpu-architecture=compute_80

// Heads of up to 128 elements. A program has heads of one extent, and loads one of these modules.
FORWARD(128, 32, 1)
GRAD(Bf16, bb, 128, 32, 1, 16, 1)
GRAD(float, bf, 128, 32, 1, 16, 1)
