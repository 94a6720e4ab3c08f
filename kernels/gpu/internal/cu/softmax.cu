#include "common.cuh"

// Softmax, its logarithm, and cross-entropy. Each row is read once where that can be: it is kept in shared memory, or maximum and sum are found together.

// term is exp(d) for a sum in which the greatest is 1: of float32 in three instructions, where exp takes twelve. What the product rounds off is much only
// where the term is small, and a term less than any normal number is 0.
double term(double d) { return exp(d); }
float term(float d) {
	float p;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(d * 1.44269504f));
	return p;
}

// Online is the maximum of some numbers, and the sum of exp(x - maximum), as far as they have been seen. A NaN makes the sum NaN.
template <class A> struct Online {
	A max, sum;

	static Online none() { return Online{-INFINITY, 0}; }

	// base is what to subtract: what is all -infinity has the sum 0, so that it comes to NaN in the end.
	static A base(A m) { return m == -INFINITY ? 0 : m; }

	template <int V> void add(const Pack<A, V>& x) {
		A m = max;
#pragma unroll
		for (int k = 0; k < V; k++) m = fmax(m, x[k]);
		A b = base(m), s = sum * term(max - b);
#pragma unroll
		for (int k = 0; k < V; k++) s += term(x[k] - b);
		max = m, sum = s;
	}
};

template <class A> A larger(A a, A b) { return fmax(a, b); }

template <class A> Online<A> shuffle(Online<A> v, u32 other) {
	v.max = shuffle(v.max, other), v.sum = shuffle(v.sum, other);
	return v;
}

template <class A> Online<A> merge(const Online<A>& a, const Online<A>& b) {
	bool first = a.max >= b.max;
	const Online<A>&high = first ? a : b, &low = first ? b : a;
	Online<A> o;
	o.max = high.max;
	o.sum = high.sum + low.sum * term(low.max - Online<A>::base(high.max));
	return o;
}

// Row is a group's row of n numbers, with their maximum and the sum of exp(x - maximum). Where `keep` says that there is shared memory for it, it is read
// once and has each exp once, and memory holds these in the end, or the numbers themselves where `plain`.
template <class T, int V, bool Within = false> struct Row {
	typedef Acc<T> A;
	static constexpr int B = Batch<T, V>;
	const Group& g;
	const T* x;
	A* kept; // whole packs
	u32 n;
	bool mine, keep;
	Online<A> o;

	// All threads of the block make one.
	// Rows lie `apart` from one another.
	Row(const Group& g, const T* x, u64 row, u32 rows, u32 n, u32 apart, bool keep, bool plain)
		: g(g), x(x + row * apart), kept(shared<A>() + g.slot * ((n + V - 1) / V * V)), n(n), mine(row < rows), keep(keep), o(Online<A>::none()) {
		if (keep) {
			exact(plain);
			return;
		}
		__shared__ Online<A> room[32];
		each([&](u32 c) { o.add(this->fetch(c)); });
		o = g.reduce(o, room, merge<A>);
	}

	void exact(bool plain) {
		__shared__ A room[32];
		each([&](u32 c) {
			auto p = this->fetch(c);
			g.put<V, B>(kept, c, n, p);
#pragma unroll
			for (int k = 0; k < V * B; k++) o.max = fmax(o.max, p[k]);
		});
		o.max = g.reduce(o.max, room, larger<A>);
		each([&](u32 c) {
			auto p = g.fetch<V, B>(kept, c, n, 0);
#pragma unroll
			for (int k = 0; k < V * B; k++) {
				p[k] = exp(p[k] - o.max);
				if (g.inside<V, B>(c, k, n)) o.sum += p[k];
			}
			if (!plain) g.put<V, B>(kept, c, n, p);
		});
		o.sum = g.reduce(o.sum, room, plus<A>);
	}

	template <class Fn> void each(Fn fn) const {
		if (mine) g.each<V, B>(n, fn);
	}

	// ends puts v in what a pack has beyond the row's end, where a row may end within one: rows lie whole packs apart.
	void ends(Pack<A, V * B>& p, u32 c, A v) const {
		if (!Within || B > 1 || c + V <= n) return;
#pragma unroll
		for (int k = 0; k < V; k++)
			if (c + k >= n) p[k] = v;
	}

	// fetch reads what is there for each's c, and -infinity beyond the row's end.
	Pack<A, V * B> fetch(u32 c) const {
		auto p = g.fetch<V, B>(x, c, n, -INFINITY);
		ends(p, c, -INFINITY);
		return p;
	}

	// write fills y with what fn makes of what is kept, or else of each element, and of its place. What a pack has beyond the row's end becomes 0.
	template <class Fn> void write(T* y, Fn fn) const {
		each([&](u32 c) {
			auto p = keep ? g.fetch<V, B>(kept, c, n, 0) : g.fetch<V, B>(x, c, n, 0);
#pragma unroll
			for (int k = 0; k < V * B; k++) p[k] = fn(p[k], g.place<V>(c, k));
			ends(p, c, 0);
			g.give<V, B>(y, c, n, p);
		});
	}
};

template <class T, int V> void softmaxRow(T* y, const T* x, u32 rows, u32 n, const Group& g, bool log, bool keep) {
	typedef Acc<T> A;
	u64 r = (u64)blockIdx.x * g.slots + g.slot;
	Row<T, V> row(g, x, r, rows, n, n, keep, log);
	A max = row.o.max, s = log ? ::log(row.o.sum) : 1 / row.o.sum;
	row.write(y + r * n, [&](A v, u32) { return log ? v - max - s : (keep ? v : exp(v - max)) * s; });
}

template <class T> void softmax(T* y, const T* x, u32 rows, u32 n, u32 lanes, u32 log, u32 keep) {
	Group g(lanes);
	if (inPacks<T>(n)) {
		softmaxRow<T, Wide<T>>(y, x, rows, n, g, log, keep);
	} else {
		softmaxRow<T, 1>(y, x, rows, n, g, log, keep);
	}
}

// gx = y*(gy - sum(y*gy)), or of the logarithm gy - exp(y)*sum(gy).
template <class T, int V> void softmaxGradRow(T* gx, const T* y, const T* gy, u32 rows, u32 n, const Group& g, bool log, bool keep) {
	typedef Acc<T> A;
	constexpr int B = Batch<T, V>;
	__shared__ A room[32];
	u64 r = (u64)blockIdx.x * g.slots + g.slot;
	bool mine = r < rows;
	gx += r * n, y += r * n, gy += r * n;
	A *keptY = shared<A>() + g.slot * n, *keptG = keptY + g.slots * n, s = 0;
	if (mine) g.each<V, B>(n, [&](u32 c) {
		auto p = g.fetch<V, B>(y, c, n, 0), q = g.fetch<V, B>(gy, c, n, 0);
		if (keep) g.put<V, B>(keptY, c, n, p), g.put<V, B>(keptG, c, n, q);
#pragma unroll
		for (int k = 0; k < V * B; k++) s += log ? q[k] : p[k] * q[k];
	});
	s = g.reduce(s, room, plus<A>);
	if (mine) g.each<V, B>(n, [&](u32 c) {
		auto p = keep ? g.fetch<V, B>(keptY, c, n, 0) : g.fetch<V, B>(y, c, n, 0);
		auto q = keep ? g.fetch<V, B>(keptG, c, n, 0) : g.fetch<V, B>(gy, c, n, 0);
#pragma unroll
		for (int k = 0; k < V * B; k++) p[k] = log ? q[k] - exp(p[k]) * s : p[k] * (q[k] - s);
		g.give<V, B>(gx, c, n, p);
	});
}

template <class T> void softmaxGrad(T* gx, const T* y, const T* gy, u32 rows, u32 n, u32 lanes, u32 log, u32 keep) {
	Group g(lanes);
	if (inPacks<T>(n)) {
		softmaxGradRow<T, Wide<T>>(gx, y, gy, rows, n, g, log, keep);
	} else {
		softmaxGradRow<T, 1>(gx, y, gy, rows, n, g, log, keep);
	}
}

// Lines is a block of 256 threads over lines whose elements lie `inner` apart: `width` lines beside each other, each with as many threads as are
// left. There are `tiles` such blocks for each of the outer indices.
struct Lines {
	u32 width, rank, threads, inner;
	u64 at;
	bool mine;

	Lines(u32 width, u32 n, u32 inner, u32 tiles) : width(width), inner(inner) {
		rank = threadIdx.x / width, threads = blockDim.x / width;
		u32 outer = blockIdx.x / tiles, c = blockIdx.x % tiles * width + threadIdx.x % width;
		mine = c < inner;
		at = (u64)outer * n * inner + c;
	}

	// reduce gives every thread what op makes of those of its line.
	template <class V, class Op> V reduce(V v, V* room, Op op) const {
		room[threadIdx.x] = v;
		for (u32 o = threads / 2; o > 0; o /= 2) {
			__syncthreads();
			if (rank < o) room[threadIdx.x] = op(room[threadIdx.x], room[threadIdx.x + o * width]);
		}
		__syncthreads();
		return room[threadIdx.x % width];
	}

	// each calls fn with every element of a line that is this thread's.
	template <class Fn> void each(u32 n, Fn fn) const {
		if (!mine) return;
#pragma unroll 1
		for (u32 k = rank; k < n; k += threads) fn(at + (u64)k * inner);
	}

	// scan is each for B elements at once, absent beyond the line's end.
	template <int B, class T, class Fn> void scan(const T* x, u32 n, Acc<T> absent, Fn fn) const {
		if (!mine) return;
#pragma unroll 1
		for (u32 k = rank; k < n; k += threads * B) {
			Pack<Acc<T>, B> p;
#pragma unroll
			for (int b = 0; b < B; b++) p[b] = k + b * threads < n ? x[at + (u64)(k + b * threads) * inner] : absent;
			fn(p);
		}
	}
};

template <class T> void softmaxStrided(T* y, const T* x, u32 n, u32 inner, u32 width, u32 tiles, u32 log) {
	typedef Acc<T> A;
	__shared__ Online<A> room[256];
	Lines l(width, n, inner, tiles);
	auto o = Online<A>::none();
	l.scan<Batch<T, 1>>(x, n, -INFINITY, [&](const Pack<A, Batch<T, 1>>& p) { o.add(p); });
	o = l.reduce(o, room, merge<A>);
	A s = log ? ::log(o.sum) : 1 / o.sum;
	l.each(n, [&](u64 at) {
		A d = x[at] - o.max;
		y[at] = log ? d - s : exp(d) * s;
	});
}

template <class T> void softmaxGradStrided(T* gx, const T* y, const T* gy, u32 n, u32 inner, u32 width, u32 tiles, u32 log) {
	typedef Acc<T> A;
	__shared__ A room[256];
	Lines l(width, n, inner, tiles);
	A s = 0;
	l.each(n, [&](u64 at) { s += log ? gy[at] : y[at] * gy[at]; });
	s = l.reduce(s, room, plus<A>);
	l.each(n, [&](u64 at) { gx[at] = log ? gy[at] - exp(y[at]) * s : y[at] * (gy[at] - s); });
}

// entropy gives each row's loss, NaN for a label that is not there.
template <class T> void entropy(Acc<T>* losses, const T* x, const void* labels, u32 wide, u32 rows, u32 n, u32 apart, u32 lanes, Fault fault) {
	typedef Acc<T> A;
	Group g(lanes);
	u64 r = (u64)blockIdx.x * g.slots + g.slot;
	Online<A> o;
	if (inPacks<T>(apart)) {
		o = Row<T, Wide<T>, true>(g, x, r, rows, n, apart, false, true).o;
	} else {
		o = Row<T, 1>(g, x, r, rows, n, apart, false, true).o;
	}
	Ids ids = {labels, wide != 0};
	if (r < rows && g.rank == 0) losses[r] = fault.index(ids, r, rows, n) ? log(o.sum) + (o.max - x[r * apart + ids[r]]) : A(NAN);
}

template <class T, int V> void entropyGradRow(T* gx, const T* x, const Ids& labels, const T* gy, u32 rows, u32 n, u32 apart, const Group& g, bool keep, const Fault& fault) {
	typedef Acc<T> A;
	u64 r = (u64)blockIdx.x * g.slots + g.slot;
	Row<T, V, true> row(g, x, r, rows, n, apart, keep, false);
	if (!row.mine) return;
	if (g.rank == 0) fault.index(labels, r, rows, n);
	i64 label = labels[r];
	A scale = label >= 0 && label < n ? *gy / rows : A(NAN), max = row.o.max, s = 1 / row.o.sum;
	row.write(gx + r * apart, [&](A v, u32 c) { return ((keep ? v : exp(v - max)) * s - (c == label ? 1 : 0)) * scale; });
	for (u32 c = n + g.rank; c < apart; c += g.size) gx[r * apart + c] = 0;
}

template <class T>
void entropyGrad(T* gx, const T* x, const void* labels, const T* gy, u32 wide, u32 rows, u32 n, u32 apart, u32 lanes, u32 keep, Fault fault) {
	Group g(lanes);
	Ids ids = {labels, wide != 0};
	if (inPacks<T>(apart)) {
		entropyGradRow<T, Wide<T>>(gx, x, ids, gy, rows, n, apart, g, keep, fault);
	} else {
		entropyGradRow<T, 1>(gx, x, ids, gy, rows, n, apart, g, keep, fault);
	}
}

#define KERNELS(T, end) \
	GLOBAL(1024) softmax_##end(T* y, const T* x, u32 rows, u32 n, u32 lanes, u32 log, u32 keep) { softmax(y, x, rows, n, lanes, log, keep); } \
	GLOBAL(1024) softmax_grad_##end(T* gx, const T* y, const T* gy, u32 rows, u32 n, u32 lanes, u32 log, u32 keep) { \
		softmaxGrad(gx, y, gy, rows, n, lanes, log, keep); \
	} \
	GLOBAL(256) softmax_strided_##end(T* y, const T* x, u32 n, u32 inner, u32 width, u32 tiles, u32 log) { \
		softmaxStrided(y, x, n, inner, width, tiles, log); \
	} \
	GLOBAL(256) softmax_grad_strided_##end(T* gx, const T* y, const T* gy, u32 n, u32 inner, u32 width, u32 tiles, u32 log) { \
		softmaxGradStrided(gx, y, gy, n, inner, width, tiles, log); \
	} \
	GLOBAL(1024) entropy_##end(Acc<T>* losses, const T* x, const void* labels, u32 wide, u32 rows, u32 n, u32 apart, u32 lanes, u64* record, u64 code) { \
		entropy(losses, x, labels, wide, rows, n, apart, lanes, Fault{record, code}); \
	} \
	GLOBAL(1024) entropy_mean_##end(T* mean, const Acc<T>* losses, u32 rows) { meanOf(mean, losses, rows); } \
	GLOBAL(1024) entropy_grad_##end(T* gx, const T* x, const void* labels, const T* gy, u32 wide, u32 rows, u32 n, u32 apart, u32 lanes, u32 keep, u64* record, u64 code) { \
		entropyGrad(gx, x, labels, gy, wide, rows, n, apart, lanes, keep, Fault{record, code}); \
	}
BOTH(KERNELS)
