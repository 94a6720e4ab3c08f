#include "common.cuh"

// Attention and its gradient, a warp to a row of q, or to one of k and v; the rows that it meets come 32 at a time, one to a lane, and no more than
// that many scores are ever there. Tensors are (b, rows, heads, d).

// Shape is what all kernels are told.
struct Shape {
	u32 b, t, s, heads, d, causal;

	// seen is how many rows of k and v row i of q sees, and first is the first row of q that sees row j.
	u32 seen(u32 i) const { return causal ? s - t + i + 1 : s; }
	u32 first(u32 j) const { return causal && j > s - t ? j - (s - t) : 0; }
	template <class T> T scale() const { return T(1) / sqrt(T(d ? d : 1)); }
};

// Row is where a warp's row lies, of tensors with n rows.
struct Row {
	u32 batch, head, at;
	bool there;

	Row(const Shape& z, u32 n) {
		u64 r = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
		there = r < (u64)z.b * z.heads * n;
		at = r % n;
		head = r / n % z.heads;
		batch = r / n / z.heads;
	}
	// of is where row k of a tensor with n rows of so many heads begins, at this row's head or some further on.
	u64 of(const Shape& z, u32 n, u32 k, u32 heads, u32 off) const { return (((u64)batch * n + k) * heads + off + head) * z.d; }
	u64 of(const Shape& z, u32 n, u32 k) const { return of(z, n, k, z.heads, 0); }
	// sum is where the logarithm of row k of q lies.
	u64 sum(const Shape& z, u32 k) const { return ((u64)batch * z.heads + head) * z.t + k; }
};

template <class T> T dot(const T* a, const T* b, u32 d) {
	T v = 0;
	for (u32 e = 0; e < d; e++) v += a[e] * b[e];
	return v;
}

template <class T> T across(T v, bool most) {
	for (u32 o = 16; o > 0; o /= 2) {
		T w = shuffle(v, o);
		v = most ? fmax(v, w) : v + w;
	}
	return v;
}

// add makes acc = acc·keep + the sum of weight[k]·rows[k] over n rows, which lie step elements from each other.
template <class T> void add(T* acc, T keep, const T* weight, const T* rows, u64 step, u32 n, u32 d) {
	for (u32 e = threadIdx.x % 32; e < d; e += 32) {
		T v = 0;
		for (u32 k = 0; k < n; k++) v += weight[k] * rows[k * step + e];
		acc[e] = acc[e] * keep + v;
	}
}

template <class T> void fill(T* to, const T* from, u32 d) {
	for (u32 e = threadIdx.x % 32; e < d; e += 32) to[e] = from ? from[e] : T(0);
}

// mine is the warp's part of the shared memory, of so many elements.
template <class T> T* mine(u32 n) { return shared<T>() + threadIdx.x / 32 * n; }

template <class T> void attention(T* y, T* sums, const T* q, const T* k, const T* v, const Shape& z) {
	Row r(z, z.t);
	if (!r.there) return;
	u32 lane = threadIdx.x % 32, n = z.seen(r.at);
	T *w = mine<T>(32 + 2 * z.d), *row = w + 32, *acc = row + z.d;
	fill(row, q + r.of(z, z.t, r.at), z.d);
	fill<T>(acc, nullptr, z.d);
	T max = -INFINITY, sum = 0;
	u64 step = (u64)z.heads * z.d;
	__syncwarp();
	for (u32 j = 0; j < n; j += 32) {
		u64 base = r.of(z, z.s, j);
		bool in = j + lane < n;
		T score = in ? dot(row, k + base + lane * step, z.d) * z.scale<T>() : T(-INFINITY);
		T now = fmax(max, across(score, true));
		T p = in ? exp(score - now) : T(0), keep = max == now ? T(1) : exp(max - now);
		max = now, sum = sum * keep + across(p, false);
		w[lane] = p;
		__syncwarp();
		add(acc, keep, w, v + base, step, n - j < 32 ? n - j : 32, z.d);
		__syncwarp();
	}
	T* to = y + r.of(z, z.t, r.at);
	for (u32 e = lane; e < z.d; e += 32) to[e] = n ? acc[e] / sum : T(0);
	if (lane == 0) sums[r.sum(z, r.at)] = n ? max + log(sum) : T(-INFINITY);
}

// Results of the gradient lie in rows of so many heads, from some head on.
template <class T>
void gradQ(T* gq, const T* q, const T* k, const T* v, const T* y, const T* sums, const T* gy, u32 heads, const Shape& z) {
	Row r(z, z.t);
	if (!r.there) return;
	u32 lane = threadIdx.x % 32, n = z.seen(r.at);
	T *w = mine<T>(32 + 3 * z.d), *row = w + 32, *grad = row + z.d, *acc = grad + z.d;
	u64 at = r.of(z, z.t, r.at), step = (u64)z.heads * z.d;
	fill(row, q + at, z.d);
	fill(grad, gy + at, z.d);
	fill<T>(acc, nullptr, z.d);
	T part = 0;
	for (u32 e = lane; e < z.d; e += 32) part += gy[at + e] * y[at + e];
	T mean = across(part, false), sum = sums[r.sum(z, r.at)];
	__syncwarp();
	for (u32 j = 0; j < n; j += 32) {
		u64 base = r.of(z, z.s, j), one = base + lane * step;
		w[lane] = 0;
		if (j + lane < n) w[lane] = exp(dot(row, k + one, z.d) * z.scale<T>() - sum) * (dot(grad, v + one, z.d) - mean) * z.scale<T>();
		__syncwarp();
		add(acc, T(1), w, k + base, step, n - j < 32 ? n - j : 32, z.d);
		__syncwarp();
	}
	fill(gq + r.of(z, z.t, r.at, heads, 0), acc, z.d);
}

template <class T>
void gradKV(T* gk, T* gv, const T* q, const T* k, const T* v, const T* y, const T* sums, const T* gy, u32 heads, u32 offK, u32 offV, const Shape& z) {
	Row r(z, z.s);
	if (!r.there) return;
	u32 lane = threadIdx.x % 32;
	T *p = mine<T>(64 + 4 * z.d), *w = p + 32, *rowK = w + 32, *rowV = rowK + z.d, *accK = rowV + z.d, *accV = accK + z.d;
	u64 at = r.of(z, z.s, r.at), step = (u64)z.heads * z.d;
	fill(rowK, k + at, z.d);
	fill(rowV, v + at, z.d);
	fill<T>(accK, nullptr, z.d);
	fill<T>(accV, nullptr, z.d);
	__syncwarp();
	for (u32 i = z.first(r.at); i < z.t; i += 32) {
		u64 base = r.of(z, z.t, i), one = base + lane * step;
		p[lane] = w[lane] = 0;
		if (i + lane < z.t) {
			p[lane] = exp(dot(rowK, q + one, z.d) * z.scale<T>() - sums[r.sum(z, i + lane)]);
			w[lane] = p[lane] * (dot(rowV, gy + one, z.d) - dot(gy + one, y + one, z.d)) * z.scale<T>();
		}
		__syncwarp();
		u32 n = z.t - i < 32 ? z.t - i : 32;
		add(accV, T(1), p, gy + base, step, n, z.d);
		add(accK, T(1), w, q + base, step, n, z.d);
		__syncwarp();
	}
	fill(gk + r.of(z, z.s, r.at, heads, offK), accK, z.d);
	fill(gv + r.of(z, z.s, r.at, heads, offV), accV, z.d);
}

#define KERNELS(T, end) \
	GLOBAL(128) attention_##end(T* y, T* sums, const T* q, const T* k, const T* v, Shape z) { attention(y, sums, q, k, v, z); } \
	GLOBAL(128) attention_grad_q_##end(T* gq, const T* q, const T* k, const T* v, const T* y, const T* sums, const T* gy, u32 heads, Shape z) { \
		gradQ(gq, q, k, v, y, sums, gy, heads, z); \
	} \
	GLOBAL(128) \
	attention_grad_kv_##end(T* gk, T* gv, const T* q, const T* k, const T* v, const T* y, const T* sums, const T* gy, u32 heads, u32 offK, u32 offV, Shape z) { \
		gradKV(gk, gv, q, k, v, y, sums, gy, heads, offK, offV, z); \
	}
BOTH(KERNELS)
