#include "norm.cuh"

#define KERNELS(T, end) \
	GLOBAL(1024) norm_##end(T* y, const T* x, const T* gamma, const T* beta, u32 rows, u32 n, u32 lanes, u32 keep, Acc<T> eps) { \
		norm(y, x, gamma, beta, rows, n, lanes, keep, eps); \
	} \
	GLOBAL(512, 1024 / 512 * 4 / sizeof(Acc<T>)) norm_grad_##end(T* gx, const T* x, const T* gamma, const T* gy, Acc<T>* part, u32 rows, u32 n, u32 lanes, Acc<T> eps) { \
		normGrad(gx, x, gamma, gy, part, rows, n, lanes, eps); \
	} \
	GLOBAL(256) norm_grad_params_##end(T* ggamma, T* gbeta, const Acc<T>* part, u32 parts, u32 n) { normGradParams(ggamma, gbeta, part, parts, n); }
BOTH(KERNELS)
