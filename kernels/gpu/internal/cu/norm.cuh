#include "common.cuh"

// Layer norm with and without its affine part. A row is read once where shared memory has room for it, or, of the gradient, registers have. All is computed from differences to the
// row's first element, so that a mean far from 0 costs no digits. X, Y and G are what memory holds of x, of the result, and of the result's gradient: parameters
// and what blocks leave for each other are of the type that all is computed in. An access has as many elements as are 16 bytes of that.

template <class A> struct Three {
	A a, b, c;
};

template <class A> Three<A> shuffle(Three<A> v, u32 other) {
	v.a = shuffle(v.a, other), v.b = shuffle(v.b, other), v.c = shuffle(v.c, other);
	return v;
}

template <class A> Three<A> plusThree(Three<A> x, Three<A> y) { return Three<A>{x.a + y.a, x.b + y.b, x.c + y.c}; }

// Row is a group's row of n numbers as differences to its mean, read once where `keep` says that there is shared memory for it.
template <class T, int V, int B> struct Row {
	typedef Acc<T> A;
	const Group& g;
	const T* x;
	A *kept, first, mean;
	u32 n;
	bool mine, keep;

	Row(const Group& g, A* kept, const T* x, bool mine, u32 n, bool keep) : g(g), x(x), kept(kept), n(n), mine(mine), keep(keep) {
		__shared__ A room[32];
		A s = 0;
		first = mine ? A(x[0]) : 0;
		each([&](u32 c) {
			auto p = g.fetch<V, B>(x, c, n, first);
#pragma unroll
			for (int k = 0; k < V * B; k++) s += p[k] -= first;
			if (keep) g.put<V, B>(kept, c, n, p);
		});
		mean = g.reduce(s, room, plus<A>) / n;
	}

	template <class Fn> void each(Fn fn) const {
		if (mine) g.each<V, B>(n, fn);
	}

	// at is the differences of the elements that c stands for, 0 beyond the row's end.
	Pack<A, V * B> at(u32 c) const {
		auto p = keep ? g.fetch<V, B>(kept, c, n, 0) : g.fetch<V, B>(x, c, n, 0);
#pragma unroll
		for (int k = 0; k < V * B; k++) {
			if (!keep) p[k] -= first;
			p[k] = g.inside<V, B>(c, k, n) ? p[k] - mean : 0;
		}
		return p;
	}
};

// y = (x - mean)/sqrt(variance + eps), times gamma, plus beta, where they are given.
template <int V, class X, class Y>
void normRow(Y* y, const X* x, const Acc<X>* gamma, const Acc<X>* beta, u32 rows, u32 n, const Group& g, bool keep, Acc<X> eps) {
	typedef Acc<X> A;
	constexpr int B = Batch<X, V>;
	__shared__ A room[32];
	u64 r = (u64)blockIdx.x * g.slots + g.slot;
	Row<X, V, B> row(g, shared<A>() + g.slot * n, x + r * n, r < rows, n, keep);
	A square = 0;
	row.each([&](u32 c) {
		auto d = row.at(c);
#pragma unroll
		for (int k = 0; k < V * B; k++) square += d[k] * d[k];
	});
	A scale = 1 / sqrt(g.reduce(square, room, plus<A>) / n + eps);
	row.each([&](u32 c) {
		auto d = row.at(c);
#pragma unroll
		for (int k = 0; k < V * B; k++) d[k] *= scale;
		if (gamma) {
			auto w = g.fetch<V, B>(gamma, c, n, 0), b = g.fetch<V, B>(beta, c, n, 0);
#pragma unroll
			for (int k = 0; k < V * B; k++) d[k] = d[k] * w[k] + b[k];
		}
		g.give<V, B>(y + r * n, c, n, d);
	});
}

template <class X, class Y> void norm(Y* y, const X* x, const Acc<X>* gamma, const Acc<X>* beta, u32 rows, u32 n, u32 lanes, u32 keep, Acc<X> eps) {
	Group g(lanes);
	typedef Acc<X> A;
	if (inPacks<A>(n)) { // were accesses of bfloat16 of 16 bytes, too, all others would be of 32
		normRow<Wide<A>>(y, x, gamma, beta, rows, n, g, keep, eps);
	} else {
		normRow<1>(y, x, gamma, beta, rows, n, g, keep, eps);
	}
}

// What a group does with its rows: gx = scale*(g - mean(g) - hat*mean(g*hat)), where hat is x with mean 0 and variance 1, scale what made it so,
// and g is gy, times gamma where that is given. Where it is, a block leaves the sums of gy*hat and of gy down its rows in part, which is (blocks, 2, n).
template <class A> struct Slope {
	A scale, whole, along;

	// s is the sums of d*d, g and d*g along the row, where d is x less its mean; each is 1/n.
	Slope(const Three<A>& s, A each, A eps) : scale(1 / sqrt(s.a * each + eps)), whole(s.b * each), along(s.c * scale * each) {}
	A operator()(A hat, A g) const { return (g - whole - hat * along) * scale; }
};

// Own is how many elements of a row a thread can have in registers: fewer where each has a place of its own. The host knows it, too (planNormGrad).
template <int V> constexpr u32 Own = V > 1 ? 8 : 4;

// Of rows that a group's registers have room for, each number is read once, and the sums down the rows are added up where they are made.
template <int V, class X, class G, class Y>
void normGradOwn(Y* gx, const X* x, const Acc<X>* gamma, const G* gy, Acc<X>* part, u32 rows, u32 n, const Group& g, Acc<X> eps) {
	typedef Acc<X> A;
	constexpr int K = Own<V> / V;
	__shared__ Three<A> room[32];
	A each = A(1) / n;
	Pack<A, V> sumHat[K], sum[K], d[K], q[K];
	auto place = [&](int k) { return (g.rank + k * g.size) * V; };
	auto has = [&](int k) { return place(k) < n; };
#pragma unroll
	for (int k = 0; k < K; k++)
#pragma unroll
		for (int v = 0; v < V; v++) sumHat[k][v] = sum[k][v] = 0;
	auto weights = [&](int k) { // again for each row: they lie in a cache, and registers are few
		Pack<A, V> w;
#pragma unroll
		for (int v = 0; v < V; v++) w[v] = 1;
		return gamma ? load<V>(gamma + place(k)) : w;
	};
#pragma unroll 1
	for (u64 base = (u64)blockIdx.x * g.slots; base < rows; base += (u64)gridDim.x * g.slots) {
		bool mine = base + g.slot < rows;
		u64 at = (base + g.slot) * n;
		A first = mine ? A(x[at]) : 0, total = 0;
#pragma unroll
		for (int k = 0; k < K; k++) {
#pragma unroll
			for (int v = 0; v < V; v++) d[k][v] = first, q[k][v] = 0;
			if (mine && has(k)) d[k] = load<V>(x + at + place(k)), q[k] = load<V>(gy + at + place(k));
		}
#pragma unroll
		for (int k = 0; k < K; k++)
#pragma unroll
			for (int v = 0; v < V; v++) total += d[k][v] -= first;
		A mean = g.reduce(total, (A*)room, plus<A>) * each;
		Three<A> s = {0, 0, 0};
#pragma unroll
		for (int k = 0; k < K; k++) {
			if (!has(k)) continue;
			auto w = weights(k);
#pragma unroll
			for (int v = 0; v < V; v++) {
				d[k][v] -= mean;
				A u = q[k][v] * w[v];
				s.a += d[k][v] * d[k][v], s.b += u, s.c += d[k][v] * u;
			}
		}
		Slope<A> slope(g.reduce(s, room, plusThree<A>), each, eps);
#pragma unroll
		for (int k = 0; k < K; k++) {
			if (!mine || !has(k)) continue;
			auto w = weights(k);
			Pack<A, V> out;
#pragma unroll
			for (int v = 0; v < V; v++) {
				A hat = d[k][v] * slope.scale;
				out[v] = slope(hat, q[k][v] * w[v]);
				sumHat[k][v] += hat * q[k][v], sum[k][v] += q[k][v];
			}
			give<V>(gx + at + place(k), out);
		}
	}
	if (!gamma) return;
	A *left = part + (u64)blockIdx.x * 2 * n, *to = g.slots > 1 ? shared<A>() + g.slot * 2 * n : left;
#pragma unroll
	for (int k = 0; k < K; k++)
		if (has(k)) store<V>(to + place(k), sumHat[k]), store<V>(to + n + place(k), sum[k]);
	if (g.slots == 1) return;
	__syncthreads();
	for (u32 c = threadIdx.x; c < 2 * n; c += blockDim.x) {
		A s = 0;
		for (u32 k = 0; k < g.slots; k++) s += shared<A>()[k * 2 * n + c];
		left[c] = s;
	}
}

// Wider rows are a block's, and are read again; so are the sums.
template <int V, class X, class G, class Y>
void normGradWide(Y* gx, const X* x, const Acc<X>* gamma, const G* gy, Acc<X>* part, u32 rows, u32 n, Acc<X> eps) {
	typedef Acc<X> A;
	constexpr int B = Batch<X, V>;
	Group g(blockDim.x);
	__shared__ Three<A> room[32];
	A* left = part + (u64)blockIdx.x * 2 * n;
	for (u64 r = blockIdx.x; r < rows; r += gridDim.x) {
		u64 at = r * n;
		Row<X, V, B> row(g, 0, x + at, true, n, false);
		auto times = [&](Pack<A, V * B> q, u32 c) {
			if (!gamma) return q;
			auto w = g.fetch<V, B>(gamma, c, n, 0);
#pragma unroll
			for (int k = 0; k < V * B; k++) q[k] *= w[k];
			return q;
		};
		Three<A> s = {0, 0, 0};
		row.each([&](u32 c) {
			auto q = times(g.fetch<V, B>(gy + at, c, n, 0), c);
			auto d = row.at(c);
#pragma unroll
			for (int k = 0; k < V * B; k++) s.a += d[k] * d[k], s.b += q[k], s.c += d[k] * q[k];
		});
		Slope<A> slope(g.reduce(s, room, plusThree<A>), A(1) / n, eps);
		row.each([&](u32 c) {
			auto hat = row.at(c), dy = g.fetch<V, B>(gy + at, c, n, 0), out = times(dy, c);
#pragma unroll
			for (int k = 0; k < V * B; k++) hat[k] *= slope.scale, out[k] = slope(hat[k], out[k]);
			g.give<V, B>(gx + at, c, n, out);
			if (!gamma) return;
#pragma unroll
			for (int k = 0; k < V * B; k++) hat[k] *= dy[k];
			if (r >= gridDim.x) {
				auto a = g.fetch<V, B>(left, c, n, 0), b = g.fetch<V, B>(left + n, c, n, 0);
#pragma unroll
				for (int k = 0; k < V * B; k++) hat[k] += a[k], dy[k] += b[k];
			}
			g.give<V, B>(left, c, n, hat), g.give<V, B>(left + n, c, n, dy);
		});
	}
}

template <int V, class X, class G, class Y>
void normGradRows(Y* gx, const X* x, const Acc<X>* gamma, const G* gy, Acc<X>* part, u32 rows, u32 n, const Group& g, Acc<X> eps) {
	if (n <= g.size * Own<V>) {
		normGradOwn<V>(gx, x, gamma, gy, part, rows, n, g, eps);
	} else {
		normGradWide<V>(gx, x, gamma, gy, part, rows, n, eps);
	}
}

template <class X, class G, class Y>
void normGrad(Y* gx, const X* x, const Acc<X>* gamma, const G* gy, Acc<X>* part, u32 rows, u32 n, u32 lanes, Acc<X> eps) {
	Group g(lanes);
	if (inPacks<X>(n)) {
		normGradRows<Wide<X>>(gx, x, gamma, gy, part, rows, n, g, eps);
	} else {
		normGradRows<1>(gx, x, gamma, gy, part, rows, n, g, eps);
	}
}

// normGradParams adds up what the blocks left: 32 columns by a block of 32 x 8 threads.
template <class T> void normGradParams(T* ggamma, T* gbeta, const Acc<T>* part, u32 parts, u32 n) {
	__shared__ double room[8][32];
	u32 lane = threadIdx.x % 32, row = threadIdx.x / 32;
	u64 c = (u64)blockIdx.x * 32 + lane, width = 2 * (u64)n;
	double s = 0;
	if (c < width)
		for (u32 k = row; k < parts; k += 8) s += part[k * width + c];
	room[row][lane] = s;
	__syncthreads();
	if (row != 0 || c >= width) return;
	for (u32 k = 1; k < 8; k++) s += room[k][lane];
	(c < n ? ggamma : gbeta - n)[c] = s;
}
