#include "common.cuh"

// nvrtc: --gpu-architecture=compute_80

// Cross-entropy of logits in bfloat16, and its gradient where logits or gradient are. Rows may have any extent, as a vocabulary has, and begin
// anywhere: memory is accessed by eights, which begin at multiples of eight of the tensor's elements, and at a row's ends by element.

// exp2 is 2^v, 0 where that is less than any normal number.
float exp2(float v) {
	float p;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(v));
	return p;
}

constexpr float Log2E = 1.44269504f;

// Online is the maximum of some numbers, and the sum of 2^(x·Log2E - base of the maximum), each in one rounding. A NaN makes the sum NaN.
struct Online {
	float max, sum;

	static Online none() { return Online{-INFINITY, 0}; }

	// base is what to subtract: what is all -infinity has the sum 0, so that it comes to NaN in the end.
	static float base(float m) { return m == -INFINITY ? 0 : m * Log2E; }

	// log is the logarithm of the sum of exp(x - max): that of the sum, less what rounding made of the base.
	float log() const { return logf(sum) - fmaf(max, Log2E, -base(max)) / Log2E; }

	// add adds N numbers, which x gives.
	template <int N, class Fn> void add(Fn x) {
		float m = max, s = 0;
#pragma unroll
		for (int k = 0; k < N; k++) m = fmaxf(m, x(k));
		float b = base(m);
#pragma unroll
		for (int k = 0; k < N; k++) s += exp2(fmaf(x(k), Log2E, -b));
		sum = sum * exp2(base(max) - b) + s, max = m;
	}
};

Online shuffle(Online v, u32 other) { return Online{shuffle(v.max, other), shuffle(v.sum, other)}; }

Online merge(const Online& a, const Online& b) {
	bool first = a.max >= b.max;
	const Online&high = first ? a : b, &low = first ? b : a;
	return Online{high.max, high.sum + low.sum * exp2(Online::base(low.max) - Online::base(high.max))};
}

// Eight is eight neighbours, as memory has them.
template <class X> struct Eight {
	static constexpr int Words = sizeof(X) / 2;
	uint4 v[Words];

	static u32 word(const uint4& q, int k) { return k == 0 ? q.x : k == 1 ? q.y : k == 2 ? q.z : q.w; }

	float operator[](int k) const {
		if constexpr (sizeof(X) == 4) return __uint_as_float(word(v[k / 4], k % 4));
		u32 two = word(v[0], k / 2);
		return k % 2 ? Bf16::high(two) : Bf16::low(two);
	}
};

// Row is a group's row of n numbers, `apart` from the one before, with their maximum and sum: `lead` numbers, eights, and what is left. Where `keep` says that there is shared memory
// for the eights, they are read once.
template <class X> struct Row {
	static constexpr int Words = Eight<X>::Words;
	const Group& g;
	const X* x;
	uint4* kept;
	u32 lead, eights, ends; // ends: how many numbers are in no eight
	bool mine, keep;
	Online o;

	// All threads of the block make one.
	Row(const Group& g, const X* all, u64 row, u32 rows, u32 n, u32 apart, bool keep) : g(g), x(all + row * apart), mine(row < rows), keep(keep), o(Online::none()) {
		lead = min(n, (u32)(-(row * apart) % 8)), eights = (n - lead) / 8, ends = n - eights * 8;
		kept = shared<uint4>() + g.slot * (n / 8) * Words;
		atEnds([&](u32 c) {
			float v = this->x[c];
			o.add<1>([&](int) { return v; });
		});
		constexpr int B = sizeof(X) == 2 ? 3 : 2; // more would take more registers than there are
		scan<B>([&](const Eight<X> (&v)[B], u32 e) {
			o.add<8 * B>([&](int k) { return v[k / 8][k % 8]; });
			if (!this->keep) return;
#pragma unroll
			for (int b = 0; b < B; b++)
#pragma unroll
				for (int w = 0; w < Words; w++)
					if (e + b * this->g.size < eights) kept[w * eights + e + b * this->g.size] = v[b].v[w];
		});
		__shared__ Online room[32];
		o = g.reduce(o, room, merge);
	}

	// atEnds calls fn with the columns in no eight that are this thread's.
	template <class Fn> void atEnds(Fn fn) const {
		if (!mine) return;
#pragma unroll 1
		for (u32 k = g.rank; k < ends; k += g.size) fn(k < lead ? k : k + eights * 8);
	}

	// scan calls fn with B eights that are this thread's, fetched together, -infinity beyond the last, and with the first one's number.
	template <int B, class Fn> void scan(Fn fn) const {
		if (!mine) return;
#pragma unroll 1
		for (u32 e = g.rank; e < eights; e += g.size * B) {
			Eight<X> v[B];
#pragma unroll
			for (int b = 0; b < B; b++) {
				u32 at = e + b * g.size, none = sizeof(X) == 2 ? 0xff80ff80 : 0xff800000;
#pragma unroll
				for (int w = 0; w < Words; w++) v[b].v[w] = at < eights ? ((const uint4*)(x + lead))[at * Words + w] : make_uint4(none, none, none, none);
			}
			fn(v, e);
		}
	}

	// write fills y, a row that begins as this one does, with exp(x - max)/sum·by, less `by` in column `less`.
	template <class Y> void write(Y* y, float by, u32 less) const {
		float base = Online::base(o.max), times = by / o.sum;
		auto put = [&](const Eight<X>& v, u32 e) {
			Pack<float, 8> p;
#pragma unroll
			for (int k = 0; k < 8; k++) p[k] = exp2(fmaf(v[k], Log2E, -base)) * times;
			u32 c = lead + e * 8;
			if (less - c < 8) {
#pragma unroll
				for (int k = 0; k < 8; k++)
					if (c + k == less) p[k] -= by;
			}
			give<8>(y + c, p);
		};
		if (mine && keep) {
#pragma unroll 1
			for (u32 e = g.rank; e < eights; e += g.size) {
				Eight<X> v;
#pragma unroll
				for (int w = 0; w < Words; w++) v.v[w] = kept[w * eights + e];
				put(v, e);
			}
		} else {
			constexpr int B = 2;
			scan<B>([&](const Eight<X> (&v)[B], u32 e) {
#pragma unroll
				for (int b = 0; b < B; b++)
					if (e + b * this->g.size < this->eights) put(v[b], e + b * this->g.size);
			});
		}
		atEnds([&](u32 c) { y[c] = exp2(fmaf(x[c], Log2E, -base)) * times - (c == less ? by : 0); });
	}
};

// entropy gives each row's loss, NaN for a label that is not there.
template <class X> void entropy(float* losses, const X* x, const Ids& labels, u32 rows, u32 n, u32 apart, u32 lanes, const Fault& fault) {
	Group g(lanes);
	u64 r = (u64)blockIdx.x * g.slots + g.slot;
	Row<X> row(g, x, r, rows, n, apart, false);
	if (!row.mine || g.rank != 0) return;
	losses[r] = fault.index(labels, r, rows, n) ? row.o.log() + (row.o.max - row.x[labels[r]]) : NAN;
}

// entropyGrad fills gx, which may be x where both are of one type.
template <class X, class Y>
void entropyGrad(Y* gx, const X* x, const Ids& labels, const float* gy, u32 rows, u32 n, u32 apart, u32 lanes, u32 keep, const Fault& fault) {
	Group g(lanes);
	u64 r = (u64)blockIdx.x * g.slots + g.slot;
	Row<X> row(g, x, r, rows, n, apart, keep);
	if (!row.mine) return;
	if (g.rank == 0) fault.index(labels, r, rows, n);
	i64 label = labels[r];
	row.write(gx + r * apart, label >= 0 && label < n ? *gy / rows : NAN, label);
	for (u32 c = n + g.rank; c < apart; c += g.size) gx[r * apart + c] = 0.0f;
}

GLOBAL(512, 2) entropy_b(float* losses, const Bf16* x, const void* labels, u32 wide, u32 rows, u32 n, u32 apart, u32 lanes, u64* record, u64 code) {
	entropy(losses, x, Ids{labels, wide != 0}, rows, n, apart, lanes, Fault{record, code});
}

GLOBAL(1024) entropy_mean_b(float* mean, const float* losses, u32 rows) { meanOf(mean, losses, rows); }

// Names end in what the logits and the gradient are.
#define GRAD(X, Y, end) \
	GLOBAL(512, 2) entropy_grad_##end(Y* gx, const X* x, const void* labels, const float* gy, u32 wide, u32 rows, u32 n, u32 apart, u32 lanes, u32 keep, u64* record, u64 code) { \
		entropyGrad(gx, x, Ids{labels, wide != 0}, gy, rows, n, apart, lanes, keep, Fault{record, code}); \
	}
GRAD(Bf16, Bf16, bb)
GRAD(Bf16, float, bf)
GRAD(float, Bf16, fb)
