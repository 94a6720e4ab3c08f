#include "common.cuh"
#include "diagonal.cuh"

// Attention by the units for products of bfloat16 (Dao, "FlashAttention-2", arXiv:2307.08691): factors are rounded to bfloat16 on their way to
// shared memory, or lie in memory as that; sums are float32. T is what memory holds of queries, keys, values and results, G of the results' gradients. A
// block owns 128 rows, of queries or of keys, of one head, 16 to a warp, which stay in registers; it walks over the rows of the other kind, N at a
// time. While a tile of them is multiplied, the next is fetched. Rows have up to D elements, a multiple of 8, and memory can be accessed by 16 bytes.

constexpr u32 Warps = 8, Threads = 32 * Warps, Tall = 16 * Warps;
constexpr float Log2E = 1.44269504f;

// Scores is a warp's part of 16×N scores, in tiles of 16×8: of a tile a thread has two neighbours of row `group` and two of row group + 8.
template <int N> using Scores = float[N / 8][4];
// Factor is a warp's 16×K left factor of products, in tiles of 16×16.
template <int K> using Factor = u32[K / 16][4];

struct Lane {
	u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	u32 group = lane / 4, in = lane % 4;
	// row is that of the e-th number of a tile, of the block's; col is its column.
	u32 row(int e) const { return warp * 16 + group + e / 2 * 8; }
	u32 col(int tile, int e) const { return tile * 8 + in * 2 + e % 2; }
};

// Align is what the shared memory's beginning is a multiple of: the addresses in it can be changed bit by bit.
constexpr u32 Align = 256;
u32 room() { return (u32)(__cvta_generic_to_shared(shared<char>()) + Align - 1) / Align * Align; }

float power2(float v) {
	float p;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(v));
	return p;
}

void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// matrices loads four 8×8 matrices, whose rows lie where the lanes' addresses say; turned, its columns are rows.
void matrices(u32 (&m)[4], u32 at) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(at) : "memory");
}
void matricesTurned(u32 (&m)[4], u32 at) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(at) : "memory");
}

// A tile is rows of D bfloat16 in shared memory, named by its address. Of row r, 8 elements have the place of which the lowest three bits are changed by
// those of r, so that those of 8 neighbouring rows are in different banks.
template <int D> u32 place(u32 row, u32 eight) { return row * D * 2 + (eight ^ row % 8) * 16; }

// Lines is where a lane finds its row of four matrices that come one below the other first, or one beside the other, in the upper left of a tile.
template <int D> struct Lines {
	u32 down = place<D>(threadIdx.x % 16, threadIdx.x / 16 % 2);
	u32 along = place<D>(threadIdx.x % 8 + threadIdx.x / 16 % 2 * 8, threadIdx.x / 8 % 2);
};
// further is the place of what lies some times 16 rows and columns from a line.
template <int D> u32 further(u32 line, u32 rows, u32 cols) { return (line ^ cols * 32) + rows * 32 * D; }

// Fetch is a thread's part of the next R rows of a head, on its way to shared memory: of float by way of registers, of bfloat16 by copies that go on
// while the thread does.
template <int R, int D, class T> struct Fetch;

template <int R, int D> struct Fetch<R, D, float> {
	static constexpr bool Copies = false;
	static constexpr int Each = D / 8, Step = Threads / Each, Times = R / Step;
	const float* from;
	u32 row, to;
	int left; // rows that there are from here on
	float4 v[Times][2];

	Fetch(const Head<const float>& x, u32 first) : row(x.row), to(place<D>(threadIdx.x / Each, threadIdx.x % Each)) {
		u32 r = first + threadIdx.x / Each, c = threadIdx.x % Each * 8;
		from = x.at + r * x.row + c;
		left = c < x.d ? (int)x.n - (int)r : 0;
	}

	// next begins to fetch a tile.
	void next(u32) {
#pragma unroll
		for (int k = 0; k < Times; k++) {
			v[k][0] = v[k][1] = make_float4(0, 0, 0, 0);
			if (left > k * Step) {
				const float4* at = (const float4*)(from + k * Step * row);
				v[k][0] = at[0], v[k][1] = at[1];
			}
		}
		from += R * row, left -= R;
	}

	// put writes what has come. What has been put is there for all threads after `arrive` and a barrier.
	void put(u32 tile) const {
#pragma unroll
		for (int k = 0; k < Times; k++) {
			const float4 &a = v[k][0], &b = v[k][1];
			asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(tile + to + k * Step * D * 2), "r"(Bf16::pair(a.x, a.y)), "r"(Bf16::pair(a.z, a.w)),
				"r"(Bf16::pair(b.x, b.y)), "r"(Bf16::pair(b.z, b.w)) : "memory");
		}
	}
};

template <int R, int D> struct Fetch<R, D, Bf16> {
	static constexpr bool Copies = true;
	static constexpr int Each = D / 8, Step = Threads / Each, Times = R / Step;
	const Bf16* from;
	u32 row, to;
	int left; // rows that there are from here on

	Fetch(const Head<const Bf16>& x, u32 first) : row(x.row), to(place<D>(threadIdx.x / Each, threadIdx.x % Each)) {
		u32 r = first + threadIdx.x / Each, c = threadIdx.x % Each * 8;
		from = x.at + r * x.row + c;
		left = c < x.d ? (int)x.n - (int)r : 0;
	}

	void next(u32 tile) {
#pragma unroll
		for (int k = 0; k < Times; k++) {
			u32 bytes = left > k * Step ? 16 : 0; // the rest is zeros
			asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(tile + to + k * Step * D * 2), "l"(from + k * Step * row), "r"(bytes) : "memory");
		}
		from += R * row, left -= R;
	}

	void put(u32) const {}
};

// arrive waits for what copies of this thread were begun.
template <class T> void arrive() {
	if constexpr (sizeof(T) == 2) asm volatile("cp.async.wait_all;" ::: "memory");
}

// own gives each warp its 16 of the block's rows. The shared memory is free before and after.
template <int D, class T> void own(Factor<D>& to, const Head<const T>& x, u32 first) {
	constexpr int R = Tall / 4;
	Fetch<R, D, T> f(x, first);
#pragma unroll
	for (int k = 0; k < 4; k++) {
		f.next(room() + k * R * D * 2);
		f.put(room() + k * R * D * 2);
	}
	arrive<T>();
	__syncthreads();
#pragma unroll
	for (int k = 0; k < D / 16; k++) matrices(to[k], further<D>(room() + Lines<D>().down, threadIdx.x / 32, k));
	__syncthreads();
}

// scores computes s = a·bᵀ, of a tile b at its line along.
template <int N, int D> void scores(Scores<N>& s, const Factor<D>& a, u32 b) {
#pragma unroll
	for (int n = 0; n < N / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++) s[n][e] = 0;
#pragma unroll
	for (int k = 0; k < D / 16; k++)
#pragma unroll
		for (int n = 0; n < N / 16; n++) {
			u32 m[4];
			matrices(m, further<D>(b, n, k));
			multiply(s[2 * n], a[k], m[0], m[1]);
			multiply(s[2 * n + 1], a[k], m[2], m[3]);
		}
}

// pack makes the k-th tile of a left factor of scores.
template <int N> void pack(Factor<N>& w, const Scores<N>& s, int k) {
#pragma unroll
	for (int e = 0; e < 4; e++) w[k][e] = Bf16::pair(s[2 * k + e / 2][e % 2 * 2], s[2 * k + e / 2][e % 2 * 2 + 1]);
}

// combine adds w·b to o, of 16 rows of a tile, at its line down.
template <int D> void combine(Scores<D>& o, const u32 (&w)[4], u32 b) {
#pragma unroll
	for (int n = 0; n < D / 16; n++) {
		u32 m[4];
		matricesTurned(m, further<D>(b, 0, n));
		multiply(o[2 * n], w, m[0], m[1]);
		multiply(o[2 * n + 1], w, m[2], m[3]);
	}
}

// combine does so with all rows of a tile.
template <int N, int D> void combine(Scores<D>& o, const Factor<N>& w, u32 b) {
#pragma unroll
	for (int k = 0; k < N / 16; k++) combine<D>(o, w[k], further<D>(b, k, 0));
}

// finite says whether all of 16 rows of a tile is, at its line down.
template <int D> bool finite(u32 b) {
	u32 over = 0; // an exponent of ones and one more
#pragma unroll 2 // registers are few
	for (int n = 0; n < D / 16; n++) {
		u32 m[4];
		matrices(m, further<D>(b, 0, n));
#pragma unroll
		for (int e = 0; e < 4; e++) over |= (m[e] & 0x7f807f80) + 0x00800080;
	}
	return !__any_sync(AllLanes, over & 0x80008000);
}

// combine also does so where the weights of what is not seen are 0, of a tile b. Where that has numbers that are not finite, its rows are added one by one, to
// those that see them.
template <int N, int D, int Sign> void combine(Scores<D>& o, const Factor<N>& w, u32 b, u32 down, const Diagonal<Sign>& d) {
	Lane me;
#pragma unroll
	for (int k = 0; k < N / 16; k++) {
		u32 at = further<D>(b + down, k, 0);
		bool low = d.sees(0, k * 16 + 15), high = d.sees(15, k * 16); // the corners that see least and most, or most and least
		if (!low && !high) continue;
		if (low && high || finite<D>(at)) {
			combine<D>(o, w[k], at);
			continue;
		}
#pragma unroll 1
		for (u32 row = 0; row < 16; row++) {
			u32 line = b + (k * 16 + row) * D * 2 + (row % 8 * 16 | me.in * 4), from = me.group * 4 + row % 8 / 2;
#pragma unroll
			for (int half = 0; half < 2; half++) {
				u32 two = __shfl_sync(AllLanes, row < 8 ? w[k][half] : w[k][2 + half], from);
				float by = row % 2 ? Bf16::high(two) : Bf16::low(two);
				if (!d.sees(me.group + half * 8, k * 16 + row)) continue;
#pragma unroll
				for (int n = 0; n < D / 8; n++) {
					u32 x;
					asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(line ^ n * 16) : "memory");
					o[n][half * 2] += by * Bf16::low(x), o[n][half * 2 + 1] += by * Bf16::high(x);
				}
			}
		}
	}
}

// put writes the block's rows, those of either half of a warp times a number.
template <int D> void put(const Head<float>& to, u32 first, const Scores<D>& o, float low, float high) {
	Lane me;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		u32 row = first + me.row(half * 2);
		if (row >= to.n) continue;
		float by = half ? high : low;
#pragma unroll
		for (int n = 0; n < D / 8; n++)
			if (n * 8 < to.d) *(float2*)(to.at + row * to.row + me.col(n, 0)) = make_float2(o[n][half * 2] * by, o[n][half * 2 + 1] * by);
	}
}

// Of two tiles, a lane gives its neighbour what that has more of, so that both write four numbers at once, and a row's 32 bytes are written together.
template <int D> void put(const Head<Bf16>& to, u32 first, const Scores<D>& o, float low, float high) {
	Lane me;
	bool odd = me.in % 2;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		u32 row = first + me.row(half * 2);
		float by = half ? high : low;
#pragma unroll
		for (int n = 0; n < D / 8; n += 2) {
			u32 a = Bf16::pair(o[n][half * 2] * by, o[n][half * 2 + 1] * by), b = Bf16::pair(o[n + 1][half * 2] * by, o[n + 1][half * 2 + 1] * by);
			u32 got = shuffle(odd ? a : b, 1), tile = n + odd;
			if (row < to.n && tile * 8 < to.d) *(uint2*)(to.at + row * to.row + tile * 8 + me.in / 2 * 4) = odd ? make_uint2(got, b) : make_uint2(a, got);
		}
	}
}

// give is put for a result of n rows. Where operands are bfloat16, `narrow` says whether the result is, too.
template <class T, int D> void give(const Rows<float>& to, bool narrow, const Place& p, u32 n, u32 d, const Scores<D>& o, float low, float high) {
	if (sizeof(T) == 2 && narrow) {
		put<D>(Head<Bf16>(Rows<Bf16>{(Bf16*)to.at, to.batch, to.head, to.row}, p, n, d), p.row, o, low, high);
	} else {
		put<D>(Head<float>(to, p, n, d), p.row, o, low, high);
	}
}

// across reduces over the lanes that have the same rows.
template <class Op> float across(float v, Op op) {
	v = op(v, shuffle(v, 1));
	return op(v, shuffle(v, 2));
}

float larger(float a, float b) { return fmaxf(a, b); }

// soften makes of scores their exponentials, less the maximum so far, and scales the sums of the tiles before to it.
template <int N, int D> void soften(Scores<N>& s, float (&most)[2], float (&sum)[2], Scores<D>& o, float scale) {
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float m = most[half];
#pragma unroll
		for (int n = 0; n < N / 8; n++) m = fmaxf(m, fmaxf(s[n][half * 2], s[n][half * 2 + 1]));
		m = across(m, larger);
		float less = m == -INFINITY ? 0 : m * scale; // a sum of 0 comes to NaN in the end
		float by = power2(most[half] * scale - less);
		most[half] = m, sum[half] *= by;
#pragma unroll
		for (int n = 0; n < N / 8; n++)
#pragma unroll
			for (int e = half * 2; e < half * 2 + 2; e++) s[n][e] = power2(s[n][e] * scale - less), sum[half] += s[n][e];
#pragma unroll
		for (int n = 0; n < D / 8; n++) o[n][half * 2] *= by, o[n][half * 2 + 1] *= by;
	}
}

template <int D, int N, class T>
void attention(const Rows<float>& to, float* sums, const Rows<const T>& q, const Rows<const T>& k, const Rows<const T>& v, const Heads<float>& x, bool narrow) {
	Lane me;
	Place here(x, x.t, Tall, D, true);
	Factor<D> a;
	own<D>(a, Head<const T>(q, here, x.t, x.d), here.row);
	Fetch<N, D, T> nextK(Head<const T>(k, here, x.s, x.d), 0), nextV(Head<const T>(v, here, x.s, x.d), 0);
	u32 first = here.row + me.warp * 16, high = x.seen(min(first + 16, x.t) - 1), end = x.seen(min(here.row + Tall, x.t) - 1);
	if (first >= x.t) high = 0;
	float most[2] = {-INFINITY, -INFINITY}, sum[2] = {};
	Scores<D> o = {};
	constexpr u32 Bytes = N * D * 2;
	if (end > 0) nextK.next(room()), nextV.next(room() + Bytes);
	Lines<D> at;
#pragma unroll 1
	for (u32 col = 0; col < end; col += N) {
		u32 tk = room() + col / N % 2 * 2 * Bytes, tv = tk + Bytes; // whoever still reads the others has come to the barrier before they are written
		u32 others = room() + (col / N + 1) % 2 * 2 * Bytes;
		nextK.put(tk), nextV.put(tv);
		arrive<T>();
		__syncthreads();
		bool more = col + N < end, later = more; // values wait until registers are free
		if (more) nextK.next(others);
		if (nextV.Copies && more) nextV.next(others + Bytes), later = false;
		if (col < high) {
			Scores<N> s;
			scores<N, D>(s, a, tk + at.along);
			bool edge = col + N + 15 > high; // the first of the rows may see 15 fewer
			if (edge) {
#pragma unroll
				for (int n = 0; n < N / 8; n++)
#pragma unroll
					for (int e = 0; e < 4; e++)
						if (col + me.col(n, e) >= min(x.s, x.seen(here.row + me.row(e)))) s[n][e] = -INFINITY;
			}
			soften<N, D>(s, most, sum, o, x.scale * Log2E);
			Factor<N> w;
#pragma unroll
			for (int k = 0; k < N / 16; k++) pack<N>(w, s, k);
			if (later) nextV.next(others + Bytes);
			if (edge) {
				combine<N, D>(o, w, tv, at.down, Diagonal<1>(x, first, col));
			} else {
				combine<N, D>(o, w, tv + at.down);
			}
		} else if (later) {
			nextV.next(others + Bytes);
		}
	}
	Place there(x, x.t, Tall, D, true); // here again
	float by[2];
#pragma unroll
	for (int half = 0; half < 2; half++) {
		sum[half] = across(sum[half], plus<float>);
		by[half] = x.s > 0 ? 1 / sum[half] : 0;
		u32 row = there.row + me.row(half * 2);
		if (row < x.t && me.in == 0) sums[there.line(x, x.t) + row] = most[half] * x.scale + logf(sum[half]);
	}
	give<T, D>(to, narrow, there, x.t, x.d, o, by[0], by[1]);
}

// attentionGradQ computes the gradient of queries, and of each row the product of the result with its gradient: the gradient of a score is
// p·(gp - that).
template <int D, int N, class T, class G>
void attentionGradQ(const Rows<float>& to, float* ygy, const Rows<const T>& q, const Rows<const T>& k, const Rows<const T>& v, const Rows<const T>& y,
	const float* sums, const Rows<const G>& gy, const Heads<float>& x, bool narrow) {
	Lane me;
	Place here(x, x.t, Tall, D, true);
	Head<const T> hy(y, here, x.t, x.d);
	Head<const G> hg(gy, here, x.t, x.d);
	Factor<D> a, g;
	own<D>(a, Head<const T>(q, here, x.t, x.d), here.row);
	own<D>(g, hg, here.row);
	float sum[2] = {}, dot[2] = {};
#pragma unroll
	for (int half = 0; half < 2; half++) {
		u32 row = here.row + me.row(half * 2);
		u64 at = here.line(x, x.t) + row;
		if (row < x.t) {
			sum[half] = sums[at] * Log2E;
#pragma unroll 2
			for (u32 c = me.in * 4; c < x.d; c += 16) {
				auto a = load<4>(hy.at + row * hy.row + c), b = load<4>(hg.at + row * hg.row + c);
				dot[half] += a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
			}
		}
		dot[half] = across(dot[half], plus<float>);
		if (row < x.t && me.in == 0) ygy[at] = dot[half];
	}
	Fetch<N, D, T> nextK(Head<const T>(k, here, x.s, x.d), 0), nextV(Head<const T>(v, here, x.s, x.d), 0);
	u32 first = here.row + me.warp * 16, low = x.seen(first), high = x.seen(min(first + 16, x.t) - 1), end = x.seen(min(here.row + Tall, x.t) - 1);
	if (first >= x.t) high = 0;
	Scores<D> o = {};
	constexpr u32 Bytes = N * D * 2;
	if (end > 0) nextK.next(room()), nextV.next(room() + Bytes);
	Lines<D> at;
#pragma unroll 1
	for (u32 col = 0; col < end; col += N) {
		u32 tk = room() + col / N % 2 * 2 * Bytes, tv = tk + Bytes; // whoever still reads the others has come to the barrier before they are written
		u32 others = room() + (col / N + 1) % 2 * 2 * Bytes;
		nextK.put(tk), nextV.put(tv);
		arrive<T>();
		__syncthreads();
		bool more = col + N < end, later = more; // values wait until registers are free
		if (more) nextK.next(others);
		if (nextV.Copies && more) nextV.next(others + Bytes), later = false;
		if (col < high) {
			Scores<N> s;
			scores<N, D>(s, a, tk + at.along);
			Factor<N> w;
#pragma unroll
			for (int k = 0; k < N; k += 16) { // some at a time, as registers are few
				Scores<16> p;
				scores<16, D>(p, g, further<D>(tv + at.along, k / 16, 0));
#pragma unroll
				for (int n = k / 8; n < k / 8 + 2; n++)
#pragma unroll
					for (int e = 0; e < 4; e++) {
						s[n][e] = power2(s[n][e] * (x.scale * Log2E) - sum[e / 2]) * (p[n % 2][e] - dot[e / 2]);
						if (col + N > low && col + me.col(n, e) >= min(x.s, x.seen(here.row + me.row(e)))) s[n][e] = 0;
					}
				pack<N>(w, s, k / 16);
			}
			if (later) nextV.next(others + Bytes);
			if (col + N > low) {
				combine<N, D>(o, w, tk, at.down, Diagonal<1>(x, first, col));
			} else {
				combine<N, D>(o, w, tk + at.down);
			}
		} else if (later) {
			nextV.next(others + Bytes);
		}
	}
	Place there(x, x.t, Tall, D, true); // here again
	give<T, D>(to, narrow, there, x.t, x.d, o, x.scale, x.scale);
}

// attentionGradKV computes the gradients of keys and values. Its scores are turned: a row is a key's.
template <int D, int N, class T, class G>
void attentionGradKV(const Rows<float>& toK, const Rows<float>& toV, const Rows<const T>& q, const Rows<const T>& k, const Rows<const T>& v, const float* sums,
	const float* ygy, const Rows<const G>& gy, const Heads<float>& x, bool narrowK, bool narrowV) {
	Lane me;
	Place here(x, x.s, Tall, D, false);
	Factor<D> a, b;
	own<D>(a, Head<const T>(k, here, x.s, x.d), here.row);
	own<D>(b, Head<const T>(v, here, x.s, x.d), here.row);
	sums += here.line(x, x.t), ygy += here.line(x, x.t);
	u32 first = here.row + me.warp * 16, begin = 0; // the first query that sees the first key
	if (x.causal && here.row > x.s - x.t) begin = here.row - (x.s - x.t);
	Fetch<N, D, T> nextQ(Head<const T>(q, here, x.t, x.d), begin);
	Fetch<N, D, G> nextG(Head<const G>(gy, here, x.t, x.d), begin);
	float nextSum = 0, nextDot = 0;
	constexpr u32 Bytes = N * D * 2;
	auto next = [&](u32 col, u32 tile) {
		nextQ.next(tile), nextG.next(tile + Bytes);
		u32 query = col + threadIdx.x;
		if (threadIdx.x >= N) return;
		nextSum = INFINITY, nextDot = 0; // what is no query has no part in anything
		if (query < x.t) nextSum = sums[query] * Log2E, nextDot = ygy[query];
	};
	Scores<D> ok = {}, ov = {};
	if (begin < x.t) next(begin, room());
	Lines<D> at;
	u32 tq = room(), tg = tq + Bytes, numbers = tq + 4 * Bytes;
	int flip = 2 * Bytes;
#pragma unroll 1
	for (u32 col = begin; col < x.t; col += N) {
		nextQ.put(tq), nextG.put(tg);
		if (threadIdx.x < N) asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(numbers + threadIdx.x * 8), "f"(nextSum), "f"(nextDot) : "memory");
		arrive<T>();
		__syncthreads();
		if (col + N < x.t) next(col + N, tq + flip);
		if (first < x.s && (!x.causal || first < x.seen(col + N - 1))) {
			Scores<N> s, g;
			scores<N, D>(s, a, tq + at.along);
			scores<N, D>(g, b, tg + at.along);
			bool edge = x.causal && first + 16 > x.seen(col);
#pragma unroll
			for (int n = 0; n < N / 8; n++) {
				float sum[2], dot[2];
				asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(sum[0]), "=f"(dot[0]), "=f"(sum[1]), "=f"(dot[1]) : "r"(numbers + me.col(n, 0) * 8) : "memory");
#pragma unroll
				for (int e = 0; e < 4; e++) {
					s[n][e] = power2(s[n][e] * (x.scale * Log2E) - sum[e % 2]);
					g[n][e] = s[n][e] * (g[n][e] - dot[e % 2]);
				}
			}
			Diagonal<-1> d(x, first, col);
			if (edge) {
#pragma unroll
				for (int n = 0; n < N / 8; n++)
#pragma unroll
					for (int e = 0; e < 4; e++)
						if (!d.sees(me.group + e / 2 * 8, me.col(n, e))) s[n][e] = g[n][e] = 0;
			}
			Factor<N> ws, wg;
#pragma unroll
			for (int k = 0; k < N / 16; k++) pack<N>(ws, s, k), pack<N>(wg, g, k);
			if (edge) {
				combine<N, D>(ov, ws, tg, at.down, d);
				combine<N, D>(ok, wg, tq, at.down, d);
			} else {
				combine<N, D>(ov, ws, tg + at.down);
				combine<N, D>(ok, wg, tq + at.down);
			}
		}
		tq += flip, tg += flip, numbers += flip / D * 2, flip = -flip;
	}
	give<T, D>(toV, narrowV, here, x.s, x.d, ov, 1, 1);
	give<T, D>(toK, narrowK, here, x.s, x.d, ok, x.scale, x.scale);
}
