#include "attention_b.cuh"

// nvrtc: --gpu-architecture=compute_80

// Heads of up to 64 elements. A program has heads of one extent, and loads one of these modules.
FORWARD(64, 32, 2)
GRAD(Bf16, bb, 64, 32, 2, 64, 1)
GRAD(float, bf, 64, 32, 2, 64, 1)
