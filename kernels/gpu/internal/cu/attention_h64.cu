#include "attention_h.cuh"

// nvrtc: --gpu-architecture=compute_90a

// Heads of up to 64 elements, on compute capability 9.0.
FOURS(64, 128, 2)
