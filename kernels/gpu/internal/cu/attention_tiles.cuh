#include "common.cuh"
#include "diagonal.cuh"
#include "attention_more.cuh"

// Tiles of attention by the units for products of bfloat16 (Dao, "FlashAttention-2", arXiv:2307.08691): factors are bfloat16, sums float32. A block owns
// some rows, of queries or of keys, of one head, M times 16 to a warp; it walks over the rows of the other kind, N at a time. While a tile of them is
// multiplied, the next is copied to shared memory. What a warp loads of a tile is multiplied with all its rows, M times. Rows have up to D elements, of
// which there are a multiple of 8, and memory can be accessed by 16 bytes.

constexpr float Log2E = 1.44269504f;

// Scores is 16×N scores of a warp, in tiles of 16×8: of a tile a thread has two neighbours of row `group` and two of row group + 8.
template <int N> using Scores = float[N / 8][4];
// Factor is a 16×K left factor of products, in tiles of 16×16.
template <int K> using Factor = u32[K / 16][4];

// Lane has M times 16 rows.
template <int M> struct Lane {
	u32 warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, in = threadIdx.x % 4;
	// row is that of the e-th number of a tile of the i-th 16 rows, of the block's; col is its column.
	u32 row(int i, int e) const { return (warp * M + i) * 16 + group + e / 2 * 8; }
	u32 col(int tile, int e) const { return tile * 8 + in * 2 + e % 2; }
};

// Align is what the shared memory's beginning is a multiple of: the addresses in it can be changed bit by bit.
constexpr u32 Align = 512;
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

// Room is how many elements of a tile's row there is room for: places can be told apart bit by bit.
template <int D> constexpr int Room = D <= 64 ? 64 : D <= 128 ? 128 : 256;
template <int N, int D> constexpr u32 Bytes = N * Room<D> * 2;

// A tile is rows of D bfloat16 in shared memory, named by its address. Of row r, 8 elements have the place of which the lowest three bits are changed by
// those of r, so that those of 8 neighbouring rows are in different banks.
template <int D> u32 place(u32 row, u32 eight) { return row * Room<D> * 2 + (eight ^ row % 8) * 16; }

// Lines is where a lane finds its row of four matrices that come one below the other first, or one beside the other, in the upper left of a tile.
template <int D> struct Lines {
	u32 down = place<D>(threadIdx.x % 16, threadIdx.x / 16 % 2);
	u32 along = place<D>(threadIdx.x % 8 + threadIdx.x / 16 % 2 * 8, threadIdx.x / 8 % 2);
};
// further is the place of what lies some times 16 rows and columns from a line.
template <int D> u32 further(u32 line, u32 rows, u32 cols) { return (line ^ cols * 32) + rows * 32 * Room<D>; }

// Fetch is a thread's part of the next R rows of a head, for a block of so many threads: copies to shared memory, which go on while the thread does.
template <int R, int D, int Threads> struct Fetch {
	static constexpr int Each = Room<D> / 8, Step = Threads / Each, Times = R / Step;
	const Bf16* from;
	u32 row, to;
	int left; // rows that there are from here on

	Fetch(const Head<const Bf16>& x, u32 first) : row(x.row), to(place<D>(threadIdx.x / Each, threadIdx.x % Each)) {
		u32 r = first + threadIdx.x / Each, c = threadIdx.x % Each * 8;
		from = x.at + r * x.row + c;
		left = c < x.d ? (int)x.n - (int)r : 0;
	}

	// next begins to copy a tile. It is there for all threads after `arrive` and a barrier.
	void next(u32 tile) {
#pragma unroll
		for (int k = 0; k < Times; k++) {
			u32 bytes = left > k * Step ? 16 : 0; // the rest is zeros
			asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(tile + to + k * Step * Room<D> * 2), "l"(from + k * Step * row), "r"(bytes) : "memory");
		}
		from += R * row, left -= R;
	}
};

// arrive waits for what copies of this thread were begun.
void arrive() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Own is a warp's rows of the block's: in registers, or where these are few, in shared memory, which a part of them is loaded from when it is needed.
template <int D, int M, int Threads, bool Held> struct Own {
	Factor<D> held[M];
	u32 line;

	// The rows come to the tile, which nobody uses then. If they are held, it is free afterwards; else they are there after `arrive` and a barrier.
	Own(const Head<const Bf16>& x, u32 first, u32 tile) : line(tile + Lines<D>().down + threadIdx.x / 32 * M * 32 * Room<D>) {
		Fetch<Threads / 2 * M, D, Threads>(x, first).next(tile);
		if constexpr (Held) {
			arrive();
			__syncthreads();
#pragma unroll
			for (int i = 0; i < M; i++)
#pragma unroll
				for (int k = 0; k < D / 16; k++) matrices(held[i][k], further<D>(line, i, k));
			__syncthreads();
		}
	}

	void part(u32 (&to)[4], int i, int k) const {
		if constexpr (Held) {
#pragma unroll
			for (int e = 0; e < 4; e++) to[e] = held[i][k][e];
		} else {
			matrices(to, further<D>(line, i, k));
		}
	}
};

// scores computes s = a·bᵀ, of a tile b at its line along.
template <int N, int D, int M, class A> void scores(Scores<N> (&s)[M], const A& a, u32 b) {
#pragma unroll
	for (int i = 0; i < M; i++)
#pragma unroll
		for (int n = 0; n < N / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++) s[i][n][e] = 0;
#pragma unroll
	for (int k = 0; k < D / 16; k++) {
		u32 rows[M][4];
#pragma unroll
		for (int i = 0; i < M; i++) a.part(rows[i], i, k);
#pragma unroll
		for (int n = 0; n < N / 16; n++) {
			u32 m[4];
			matrices(m, further<D>(b, n, k));
#pragma unroll
			for (int i = 0; i < M; i++) {
				multiply(s[i][2 * n], rows[i], m[0], m[1]);
				multiply(s[i][2 * n + 1], rows[i], m[2], m[3]);
			}
		}
	}
}

// pack makes the k-th tile of a left factor of scores.
template <int N> void pack(Factor<N>& w, const Scores<N>& s, int k) {
#pragma unroll
	for (int e = 0; e < 4; e++) w[k][e] = Bf16::pair(s[2 * k + e / 2][e % 2 * 2], s[2 * k + e / 2][e % 2 * 2 + 1]);
}

// combine adds w·b to o, of C columns of 16 rows of a tile of D, at their line down.
template <int D, int C> void combine(Scores<C>& o, const u32 (&w)[4], u32 b) {
#pragma unroll
	for (int n = 0; n < C / 16; n++) {
		u32 m[4];
		matricesTurned(m, further<D>(b, 0, n));
		multiply(o[2 * n], w, m[0], m[1]);
		multiply(o[2 * n + 1], w, m[2], m[3]);
	}
}

// combine does so with all rows of a tile.
template <int N, int D, int C, int M> void combine(Scores<C> (&o)[M], const Factor<N> (&w)[M], u32 b) {
#pragma unroll
	for (int k = 0; k < N / 16; k++)
#pragma unroll
		for (int n = 0; n < C / 16; n++) {
			u32 m[4];
			matricesTurned(m, further<D>(b, k, n));
#pragma unroll
			for (int i = 0; i < M; i++) {
				multiply(o[i][2 * n], w[i][k], m[0], m[1]);
				multiply(o[i][2 * n + 1], w[i][k], m[2], m[3]);
			}
		}
}

// finite says whether all of C columns of 16 rows of a tile is, at their line down.
template <int D, int C> bool finite(u32 b) {
	u32 over = 0; // an exponent of ones and one more
#pragma unroll 2 // registers are few
	for (int n = 0; n < C / 16; n++) {
		u32 m[4];
		matrices(m, further<D>(b, 0, n));
#pragma unroll
		for (int e = 0; e < 4; e++) over |= (m[e] & 0x7f807f80) + 0x00800080;
	}
	return !__any_sync(AllLanes, over & 0x80008000);
}

// combine also does so where the weights of what is not seen are 0, of a tile b. Where that has numbers that are not finite, its rows are added one by one, to
// those that see them. The diagonal is that of the first 16 rows.
template <int N, int D, int C, int M, int Sign> void combine(Scores<C> (&o)[M], const Factor<N> (&w)[M], u32 b, u32 down, const Diagonal<Sign>& d) {
	Lane<M> me;
#pragma unroll
	for (int k = 0; k < N / 16; k++)
#pragma unroll
		for (int i = 0; i < M; i++) {
			u32 at = further<D>(b + down, k, 0);
			int r = i * 16;
			bool low = d.sees(r, k * 16 + 15), high = d.sees(r + 15, k * 16); // the corners that see least and most, or most and least
			if (!low && !high) continue;
			if (low && high || finite<D, C>(at)) {
				combine<D, C>(o[i], w[i][k], at);
				continue;
			}
#pragma unroll 1
			for (u32 row = 0; row < 16; row++) {
				u32 line = b + (k * 16 + row) * Room<D> * 2 + (row % 8 * 16 | me.in * 4), from = me.group * 4 + row % 8 / 2;
#pragma unroll
				for (int half = 0; half < 2; half++) {
					u32 two = __shfl_sync(AllLanes, row < 8 ? w[i][k][half] : w[i][k][2 + half], from);
					float by = row % 2 ? Bf16::high(two) : Bf16::low(two);
					if (!d.sees(r + me.group + half * 8, k * 16 + row)) continue;
#pragma unroll
					for (int n = 0; n < C / 8; n++) {
						u32 x;
						asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(line ^ n * 16) : "memory");
						o[i][n][half * 2] += by * Bf16::low(x), o[i][n][half * 2 + 1] += by * Bf16::high(x);
					}
				}
			}
		}
}

