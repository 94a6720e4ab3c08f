#include "attention_bf16.cuh"

// Attention whose queries, keys, values and result are bfloat16. The gradients that it computes are float32, or bfloat16 where `narrow` says so.

// A kernel's name ends in D. Blocks: how many a processor has at once.
#define FORWARD(D, N, blocks) \
	GLOBAL(Threads, blocks) attention_b_##D(Rows<float> y, float* sums, Rows<const Bf16> q, Rows<const Bf16> k, Rows<const Bf16> v, Heads<float> x, u32 narrow) { \
		attention<D, N>(y, sums, q, k, v, x, narrow != 0); \
	}

// Before that it ends in what the gradient of the result is.
#define GRAD(G, end, D, NQ, blocksQ, NKV, blocksKV) \
	GLOBAL(Threads, blocksQ) attention_grad_q_##end##_##D(Rows<float> gq, float* ygy, Rows<const Bf16> q, Rows<const Bf16> k, Rows<const Bf16> v, \
		Rows<const Bf16> y, const float* sums, Rows<const G> gy, Heads<float> x, u32 narrow) { \
		attentionGradQ<D, NQ>(gq, ygy, q, k, v, y, sums, gy, x, narrow != 0); \
	} \
	GLOBAL(Threads, blocksKV) attention_grad_kv_##end##_##D(Rows<float> gk, Rows<float> gv, Rows<const Bf16> q, Rows<const Bf16> k, Rows<const Bf16> v, \
		const float* sums, const float* ygy, Rows<const G> gy, Heads<float> x, u32 narrowK, u32 narrowV) { \
		attentionGradKV<D, NKV>(gk, gv, q, k, v, sums, ygy, gy, x, narrowK != 0, narrowV != 0); \
	}
