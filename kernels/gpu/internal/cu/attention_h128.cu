#include "attention_h.cuh"

// nvrtc: --gpu-architecture=compute_90a

// Heads of up to 128 elements, on compute capability 9.0.
FOURS(128, 128, 2)
