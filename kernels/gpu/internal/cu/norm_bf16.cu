#include "norm.cuh"

// nvrtc: --gpu-architecture=compute_80

// Layer norm where x, the result or its gradient are bfloat16. Names end in what x and the result are, or x and the gradients of the result and of x.

#define NORM(X, Y, end) \
	GLOBAL(1024) norm_##end(Y* y, const X* x, const float* gamma, const float* beta, u32 rows, u32 n, u32 lanes, u32 keep, float eps) { \
		norm(y, x, gamma, beta, rows, n, lanes, keep, eps); \
	}
NORM(float, Bf16, fb)
NORM(Bf16, Bf16, bb)
NORM(Bf16, float, bf)

#define GRAD(G, Y, end) \
	GLOBAL(512, 2) norm_grad_f##end(Y* gx, const float* x, const float* gamma, const G* gy, float* part, u32 rows, u32 n, u32 lanes, float eps) { \
		normGrad(gx, x, gamma, gy, part, rows, n, lanes, eps); \
	}
GRAD(Bf16, float, bf)
GRAD(Bf16, Bf16, bb)
GRAD(float, Bf16, fb)

GLOBAL(256) norm_grad_params_b(float* ggamma, float* gbeta, const float* part, u32 parts, u32 n) { normGradParams(ggamma, gbeta, part, parts, n); }
