#include "attention_bf16.cuh"

// nvrtc: --gpu-architecture=compute_80

// Attention whose operands and results are float32.

// A kernel's name ends in D. Blocks: how many a processor has at once.
#define KERNELS(D, N, blocks, NQ, blocksQ, NKV, blocksKV) \
	GLOBAL(Threads, blocks) attention_bf16_##D(Rows<float> y, float* sums, Rows<const float> q, Rows<const float> k, Rows<const float> v, Heads<float> x) { \
		attention<D, N>(y, sums, q, k, v, x, false); \
	} \
	GLOBAL(Threads, blocksQ) attention_grad_q_bf16_##D(Rows<float> gq, float* ygy, Rows<const float> q, Rows<const float> k, Rows<const float> v, \
		Rows<const float> y, const float* sums, Rows<const float> gy, Heads<float> x) { \
		attentionGradQ<D, NQ>(gq, ygy, q, k, v, y, sums, gy, x, false); \
	} \
	GLOBAL(Threads, blocksKV) attention_grad_kv_bf16_##D(Rows<float> gk, Rows<float> gv, Rows<const float> q, Rows<const float> k, Rows<const float> v, \
		const float* sums, const float* ygy, Rows<const float> gy, Heads<float> x) { \
		attentionGradKV<D, NKV>(gk, gv, q, k, v, sums, ygy, gy, x, false, false); \
	}
KERNELS(64, 32, 2, 32, 2, 64, 1)
KERNELS(128, 32, 1, 32, 1, 16, 1)
