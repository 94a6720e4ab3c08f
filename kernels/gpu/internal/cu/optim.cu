#include "common.cuh"
// nvrtc: --fmad=false
// Products and sums stay apart, as on the host: replicas on unlike machines step to the same bits.
// Where the fault record tells of something that they would go by, and until it is read, steps leave what is there: it may be NaN or worse.

enum Rule { SGD, Momentum, Adam, Adagrad, Adadelta, RMSprop, Rprop, Adamax };
enum Flag { Nesterov = 1, Centered = 2, Moving = 4, EpsFirst = 8 };

// Step is a rule and its numbers, of which each reads some: kernels/gpu/optim.go fills it in.
template <class A> struct Step {
	u32 rule, flags;
	A scale, decay, lr, b1, r1, b2, r2, eps, correct, keep;
};

// Count is what the numbers of a Step depend on that change with the count of steps.
struct Count {
	u64 step;
	double lr, b1, b2, eps, decay, rest;

	// power is kernels.Update's: the same products.
	static double power(double x, u64 n) {
		double p = 1;
		for (; n > 0; n >>= 1, x *= x)
			if (n & 1) p *= x;
		return p;
	}

	// without makes the numbers those of a step before which some were not made: kernels.Update's Rates.
	template <class A> void without(u64 missed, Step<A>& s) const {
		u64 n = step - missed;
		switch (s.rule) {
		case Momentum: s.r1 = n == 1 ? 1 : rest; return;
		case Adam: {
			double correct = 1 / sqrt(1 - power(b2, n));
			s.correct = correct, s.eps = s.flags & EpsFirst ? eps * correct : eps;
		} // and
		case Adamax: s.lr = lr / (1 - power(b1, n)); return;
		case Adagrad: s.lr = lr / (1 + (double)(n - 1) * decay);
		}
	}
};

// greater is the maximum of two, or a NaN.
template <class A> A greater(A a, A b) { return a > b || a != a ? a : b; }

// apply steps a weight and its state by a gradient.
template <class A> void apply(const Step<A>& s, u32 slots, A& w, A g, A& a, A& b, A& c) {
	A d = s.scale * g;
	if (s.decay != 0) d += s.decay * w; // an infinite weight is left out where there is no decay
	switch (s.rule) {
	case SGD: w -= s.lr * d; return;
	case Momentum:
		a = s.b1 * a + s.r1 * d;
		w -= s.lr * (s.flags & Nesterov ? d + s.b1 * a : a);
		return;
	case Adam: {
		a = s.b1 * a + s.r1 * d;
		b = s.b2 * b + s.r2 * d * d;
		A square = slots == 3 ? c = greater(b, c) : b;
		w = s.keep * w - s.lr * a / (sqrt(square) * s.correct + s.eps);
		return;
	}
	case Adagrad:
		a += d * d;
		w -= s.lr * d / (sqrt(a) + s.eps);
		return;
	case Adadelta: {
		a = s.b2 * a + s.r2 * d * d;
		A delta = sqrt(b + s.eps) / sqrt(a + s.eps) * d;
		b = s.b2 * b + s.r2 * delta * delta;
		w -= s.lr * delta;
		return;
	}
	case RMSprop: {
		a = s.b2 * a + s.r2 * d * d;
		A square = a;
		if (s.flags & Centered) {
			bool third = s.flags & Moving;
			A mean = s.b2 * (third ? c : b) + s.r2 * d;
			square -= mean * mean;
			c = third ? mean : c, b = third ? b : mean;
		}
		d /= sqrt(square) + s.eps;
		if (s.flags & Moving) b = d += s.b1 * b;
		w -= s.lr * d;
		return;
	}
	case Rprop: {
		A turn = d * a;
		if (turn > 0) b *= s.b2;
		if (turn < 0) b *= s.b1, d = 0; // it went too far: a smaller step, from the next gradient on
		b = greater(b, s.r1);
		if (b > s.r2) b = s.r2;
		a = d;
		w -= d > 0 ? b : d < 0 ? -b : 0;
		return;
	}
	case Adamax:
		a = s.b1 * a + s.r1 * d;
		b = greater(s.b2 * b, fabs(d) + s.eps);
		w -= s.lr * a / b;
	}
}

// Tensors is parameters to step, each of `slots` slots of state. A parameter is its number of elements and the addresses of its value, its gradient,
// its state and its count of steps that were missed, which may be 0, and of the results of value, state and count. Blocks have 256*Rounds accesses
// each; the block first[k] is the first of parameter k.
struct Tensors {
	u64 words[440];
	u32 first[74];
	u32 count, slots;
};

constexpr u32 Rounds = 4;

template <class T> struct Update {
	T *p, *g, *a, *b, *c, *po, *ao, *bo, *co;
	u64 *missed, *missedOut;
	u32 slots;

	Update(const Tensors& t, u32 k) : slots(t.slots) {
		u32 in = k * (6 + 2 * slots) + 1, out = in + 3 + slots;
		missed = (u64*)t.words[out - 1], missedOut = (u64*)t.words[out + 1 + slots];
		p = (T*)t.words[in], g = (T*)t.words[in + 1], po = (T*)t.words[out];
		if (slots > 0) a = (T*)t.words[in + 2], ao = (T*)t.words[out + 1];
		if (slots > 1) b = (T*)t.words[in + 3], bo = (T*)t.words[out + 2];
		if (slots > 2) c = (T*)t.words[in + 4], co = (T*)t.words[out + 3];
	}

	template <int V> void at(u64 k, const Step<Acc<T>>& s, const u64* record, u64 heed) const {
		typedef Pack<Acc<T>, V> P;
		P w = load<V>(p + k), d = load<V>(g + k), x, y, z;
		if (slots > 0) x = load<V>(a + k);
		if (slots > 1) y = load<V>(b + k);
		if (slots > 2) z = load<V>(c + k);
		if (!Fault::told(record, heed)) {
#pragma unroll
			for (int v = 0; v < V; v++) apply(s, slots, w[v], d[v], x[v], y[v], z[v]);
		}
		give<V>(po + k, w);
		if (slots > 0) give<V>(ao + k, x);
		if (slots > 1) give<V>(bo + k, y);
		if (slots > 2) give<V>(co + k, z);
	}
};

template <class T> void update(const Tensors& t, Step<Acc<T>> s, const Count& c, const u64* record, u64 heed) {
	constexpr u32 V = Wide<T>;
	u32 k = 0, end = t.count; // the last parameter that begins at or before this block
	while (end - k > 1) {
		u32 middle = (k + end) / 2;
		(t.first[middle] <= blockIdx.x ? k : end) = middle;
	}
	Update<T> u(t, k);
	if (u.missed != 0) {
		u64 missed = *u.missed; // others read it when it has been written: it is the same, or they go by neither
		if (blockIdx.x == t.first[k] && threadIdx.x == 0) *u.missedOut = missed + Fault::told(record, heed);
		if (missed != 0) c.without(missed, s);
	}
	u64 n = t.words[k * (6 + 2 * t.slots)], at = (u64)(blockIdx.x - t.first[k]) * (256 * Rounds * V) + threadIdx.x * V;
	for (u32 r = 0; r < Rounds && at < n; r++, at += 256 * V) {
		if (at + V <= n) {
			u.template at<V>(at, s, record, heed);
		} else {
#pragma unroll 1
			for (u64 one = at; one < n; one++) u.template at<1>(one, s, record, heed);
		}
	}
}

// rowUpdates steps rows of tables, a group for each id that occurs, by the rows of g that have it, in their order: by one after another, or by their sum.
template <class T> struct RowUpdates {
	T *p, *a, *b, *c;
	const T* g;
	const u64* keys;
	u32 count, n, slots, lanes, sum;
	u64 rows;

	template <int V> void run(const Group& group, const Segment& s, const Step<Acc<T>>& step) const {
		typedef Pack<Acc<T>, V> P;
		u64 row = s.id * n;
		group.each<V, 1>(n, [&](u32 at) {
			u64 k = row + at;
			P w = load<V>(p + k), x, y, z;
			if (slots > 0) x = load<V>(a + k);
			if (slots > 1) y = load<V>(b + k);
			if (slots > 2) z = load<V>(c + k);
			u32 j = s.from;
			P d = load<V>(g + (u64)(u32)keys[j] * n + at);
			if (sum && j + 1 < s.to) {
				Pack<double, V> all;
#pragma unroll
				for (int v = 0; v < V; v++) all[v] = d[v];
#pragma unroll 4 // fetched together
				for (j++; j < s.to; j++) {
					P more = load<V>(g + (u64)(u32)keys[j] * n + at);
#pragma unroll
					for (int v = 0; v < V; v++) all[v] += more[v];
				}
#pragma unroll
				for (int v = 0; v < V; v++) d[v] = all[v];
			}
#pragma unroll 1
			for (;;) {
#pragma unroll
				for (int v = 0; v < V; v++) apply(step, slots, w[v], d[v], x[v], y[v], z[v]);
				if (++j >= s.to) break;
				d = load<V>(g + (u64)(u32)keys[j] * n + at);
			}
			give<V>(p + k, w);
			if (slots > 0) give<V>(a + k, x);
			if (slots > 1) give<V>(b + k, y);
			if (slots > 2) give<V>(c + k, z);
		});
	}
};

template <class T> void rowUpdates(const RowUpdates<T>& r, const Step<Acc<T>>& step) {
	Group g(r.lanes);
	Segment s(r.keys, r.count, r.rows, blockIdx.x * g.slots + g.slot);
	if (!s.mine) return;
	if (inPacks<T>(r.n)) {
		r.template run<Wide<T>>(g, s, step);
	} else {
		r.template run<1>(g, s, step);
	}
}

// rowBinaries is rowUpdates for a function of two numbers.
enum Binary { Add, Sub, Mul, Div, Maximum, Minimum };

template <class A> A binary(u32 fn, A a, A b) {
	switch (fn) {
	case Add: return a + b;
	case Sub: return a - b;
	case Mul: return a * b;
	case Div: return a / b;
	case Maximum: return greater(a, b);
	}
	return a < b || a != a ? a : b;
}

template <class T> void rowBinaries(T* p, const T* g, const u64* keys, u32 count, u32 n, u32 lanes, u64 rows, u32 fn) {
	Group group(lanes);
	Segment s(keys, count, rows, blockIdx.x * group.slots + group.slot);
	if (!s.mine) return;
	group.each<1, 1>(n, [&](u32 at) {
		Acc<T> w = p[s.id * n + at];
#pragma unroll 1
		for (u32 j = s.from; j < s.to; j++) w = binary<Acc<T>>(fn, w, g[(u64)(u32)keys[j] * n + at]);
		p[s.id * n + at] = w;
	});
}

// told is Fault's, and counts a step that is not made.
bool told(const u64* record, u64 heed, u64* missed) {
	bool is = Fault::told(record, heed);
	if (is && missed != 0 && blockIdx.x == 0 && threadIdx.x == 0) *missed += 1;
	return is;
}

#define KERNELS(T, end) \
	GLOBAL(256) update_##end(Tensors t, Step<Acc<T>> s, Count c, const u64* record, u64 heed) { update<T>(t, s, c, record, heed); } \
	GLOBAL(256) rows_update_##end(T* p, T* a, T* b, T* c, const T* g, const u64* keys, u64* missed, u32 count, u32 n, u32 slots, u32 lanes, u32 sum, u64 rows, Step<Acc<T>> s, Count by, \
		const u64* record, u64 heed) { \
		if (told(record, heed, missed)) return; \
		if (missed != 0 && *missed != 0) by.without(*missed, s); \
		rowUpdates(RowUpdates<T>{p, a, b, c, g, keys, count, n, slots, lanes, sum, rows}, s); \
	} \
	GLOBAL(256) rows_binary_##end(T* p, const T* g, const u64* keys, u32 count, u32 n, u32 lanes, u64 rows, u32 fn, const u64* record, u64 heed) { \
		if (!Fault::told(record, heed)) rowBinaries(p, g, keys, count, n, lanes, rows, fn); \
	}
BOTH(KERNELS)
