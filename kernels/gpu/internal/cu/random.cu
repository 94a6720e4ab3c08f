#include "common.cuh"
#include "philox.cuh"

// put writes up to V elements of n, from place at on.
template <int V, class T> void put(T* o, u64 at, u64 n, const Pack<Acc<T>, V>& p) {
	if (at + V <= n) {
		constexpr int W = Wide<T> < V ? Wide<T> : V;
#pragma unroll
		for (int v = 0; v < V; v += W) {
			Pack<Acc<T>, W> q;
#pragma unroll
			for (int k = 0; k < W; k++) q[k] = p[v + k];
			give<W>(o + at + v, q);
		}
		return;
	}
#pragma unroll
	for (int v = 0; v < V; v++)
		if (at + v < n) o[at + v] = p[v];
}

// uniform fills o from [0, 1).
void uniform(float* o, const Key& key, u64 t, u64 n) {
	uint4 w = words(key, t);
	Pack<float, 4> p = {{(float)(w.x >> 8), (float)(w.y >> 8), (float)(w.z >> 8), (float)(w.w >> 8)}};
#pragma unroll
	for (int k = 0; k < 4; k++) p[k] *= 1.f / (1 << 24);
	put(o, 4 * t, n, p);
}

void uniform(double* o, const Key& key, u64 t, u64 n) {
	uint4 w = words(key, t);
	Pack<double, 2> p = {{(double)(((u64)w.x << 32 | w.y) >> 11), (double)(((u64)w.z << 32 | w.w) >> 11)}};
#pragma unroll
	for (int k = 0; k < 2; k++) p[k] *= 1. / (1ull << 53);
	put(o, 2 * t, n, p);
}

// bernoulli fills o with yes where a word is below a threshold, else with no: each a function of the element's place.
template <class T, class Yes> void bernoulli(T* o, const Key& key, u64 t, u64 n, u64 threshold, Yes yes) {
	uint4 w = words(key, t);
	u32 all[4] = {w.x, w.y, w.z, w.w};
	Pack<Acc<T>, 4> p;
#pragma unroll
	for (int k = 0; k < 4; k++) p[k] = all[k] < threshold ? yes(k) : 0;
	put(o, 4 * t, n, p);
}

template <class T> void dropout(T* o, const T* x, const Key& key, u64 t, u64 n, u64 threshold, Acc<T> scale) {
	Pack<Acc<T>, 4> p;
	constexpr int W = Wide<T> < 4 ? Wide<T> : 4;
	if (4 * t + 4 <= n) {
#pragma unroll
		for (int v = 0; v < 4; v += W) {
			auto q = load<W>(x + 4 * t + v);
#pragma unroll
			for (int k = 0; k < W; k++) p[v + k] = q[k];
		}
	} else {
#pragma unroll
		for (int v = 0; v < 4; v++) p[v] = 4 * t + v < n ? x[4 * t + v] : 0;
	}
	bernoulli(o, key, t, n, threshold, [&](int k) { return p[k] * scale; });
}

// A thread makes the elements of one block of words.
#define KERNELS(T, end) \
	GLOBAL(256) uniform_##end(T* o, const Key* key, u64 n) { uniform(o, *key, (u64)blockIdx.x * blockDim.x + threadIdx.x, n); } \
	GLOBAL(256) bernoulli_##end(T* o, const Key* key, u64 n, u64 threshold) { \
		bernoulli(o, *key, (u64)blockIdx.x * blockDim.x + threadIdx.x, n, threshold, [](int) { return Acc<T>(1); }); \
	} \
	GLOBAL(256) dropout_##end(T* o, const T* x, const Key* key, u64 n, u64 threshold, Acc<T> scale) { \
		dropout(o, x, *key, (u64)blockIdx.x * blockDim.x + threadIdx.x, n, threshold, scale); \
	}
BOTH(KERNELS)
