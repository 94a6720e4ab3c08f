#include "attention_b.cuh"
#include "hopper.cuh"

// Attention over bfloat16 by what compute capability 9.0 has (Shah et al., "FlashAttention-3", arXiv:2407.08608). A processor has one block, which does one piece
// of work after another: W·64 rows of queries of one head. Of its warps, four copy tiles of keys and values into a ring, which needs one thread and few registers,
// and goes on to the next piece while others end this one. Each four of the others own 64 rows: the products for the scores of the next tile and for the result of
// this one go on while exponentials are computed. Tiles come from the last to the first, so those that not all rows see come first, when little is under way.

constexpr u32 RowBytes = 128;

// Ring is where a block's tiles lie in shared memory, in columns of 64 elements: rows of 128 bytes. Of a head's D elements there are D/64 such columns.
template <int D, int N, int W> struct Ring {
	static constexpr u32 Stages = 2, Columns = D / 64, Own = W * 64 * RowBytes, Tile = N * RowBytes, Align = 1024;
	static constexpr u32 Bytes = Align + Columns * (Own + 2 * Stages * Tile);
	u32 q, k, v, barriers;

	explicit Ring(u64* barriers) : barriers((u32)__cvta_generic_to_shared(barriers)) {
		q = (u32)(__cvta_generic_to_shared(shared<char>()) + Align - 1) / Align * Align;
		k = q + Columns * Own, v = k + Stages * Columns * Tile;
	}

	// Barriers: queries have come, and have been read; of a stage keys, and values, likewise.
	static constexpr u32 Barriers = 2 + 4 * Stages;
	Barrier queries() const { return {barriers}; }
	Barrier noQueries() const { return {barriers + 8}; }
	Barrier full(u32 stage, bool values) const { return {barriers + 16 + (stage * 4 + values * 2) * 8}; }
	Barrier empty(u32 stage, bool values) const { return {barriers + 16 + (stage * 4 + values * 2 + 1) * 8}; }

	void make() const {
		queries().make(1), noQueries().make(W * 4);
		for (u32 s = 0; s < Stages; s++)
			for (u32 v = 0; v < 2; v++) full(s, v).make(1), empty(s, v).make(W * 4);
	}

	u32 keys(u32 stage) const { return k + stage * Columns * Tile; }
	u32 values(u32 stage) const { return v + stage * Columns * Tile; }
};

// Work is the n-th piece: rows of queries from one on, and the tiles of keys that these see. As many heads as there are blocks are taken together, and of these
// the rows come first that see most: so all blocks have about as much to do, and blocks that run together read few keys.
template <int N, int W> struct Work : Place {
	u32 tiles;

	Work(const Heads<float>& x, u32 heads, u32 n) : Place(x, 1, 1, 1, 1, false) {
		u32 blocks = (x.t + W * 64 - 1) / (W * 64), from = n / (gridDim.x * blocks) * gridDim.x, together = min(gridDim.x, heads - from);
		n -= from * blocks;
		u32 at = from + n % together;
		batch = at / x.heads, head = at % x.heads, row = (blocks - 1 - n / together) * (W * 64), col = 0;
		tiles = (x.seen(min(row + W * 64, x.t) - 1) + N - 1) / N;
	}

	static u32 all(const Heads<float>& x, u32 heads) { return heads * ((x.t + W * 64 - 1) / (W * 64)); }
};

// Turn is the number of a tile in a ring: its stage, and the parity of the phase in which it is there.
struct Turn {
	u32 stage, parity;
	template <u32 Stages> static Turn of(u32 n) { return {n % Stages, n / Stages % 2}; }
};

// fill copies all that a block reads: of tiles the keys of the next before the values of this one.
template <int D, int N, int W>
void fill(const Ring<D, N, W>& ring, const Map& q, const Map& k, const Map& v, const Heads<float>& x, u32 heads) {
	typedef Ring<D, N, W> R;
	u32 first = 0, parity = 1;
#pragma unroll 1
	for (u32 i = blockIdx.x; i < Work<N, W>::all(x, heads); i += gridDim.x, parity ^= 1) {
		Work<N, W> here(x, heads, i);
		auto copy = [&](u32 to, u32 column, const Map& m, Barrier b, u32 row, u32 head) {
#pragma unroll
			for (u32 c = 0; c < R::Columns; c++) copyTile(to + c * column, m, b, c * 64, row, head, here.batch);
		};
		auto next = [&](u32 n, bool values) {
			Turn t = Turn::of<R::Stages>(first + n);
			ring.empty(t.stage, values).wait(t.parity ^ 1);
			Barrier full = ring.full(t.stage, values);
			full.expect(R::Columns * R::Tile);
			copy(values ? ring.values(t.stage) : ring.keys(t.stage), R::Tile, values ? v : k, full, (here.tiles - 1 - n) * N, here.head / x.share);
		};
		next(0, false);
		ring.noQueries().wait(parity);
		ring.queries().expect(R::Columns * R::Own);
		copy(ring.q, R::Own, q, ring.queries(), here.row, here.head);
#pragma unroll 1
		for (u32 n = 1; n < here.tiles; n++) next(n, false), next(n - 1, true);
		next(here.tiles - 1, true);
		first += here.tiles;
	}
}

// Rows64 is what four warps know of their rows.
template <int D, int N> struct Rows64 {
	float most[2], sum[2];
	Scores<N> s;
	Factor<N> w;
	Scores<D> o[1];
};

// lower makes of 16 rows of scores their exponentials, less the maximum so far, and says what the sums of the tiles before are to be multiplied by.
template <int D, int N> void lower(Rows64<D, N>& x, float (&by)[2], float scale) {
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float m = x.most[half];
#pragma unroll
		for (int n = 0; n < N / 8; n++) m = fmaxf(m, fmaxf(x.s[n][half * 2], x.s[n][half * 2 + 1]));
		m = across(m, larger);
		float less = m == -INFINITY ? 0 : m * scale; // a sum of 0 comes to NaN in the end
		by[half] = power2(x.most[half] * scale - less);
		x.most[half] = m, x.sum[half] *= by[half];
#pragma unroll
		for (int n = 0; n < N / 8; n++)
#pragma unroll
			for (int e = half * 2; e < half * 2 + 2; e++) x.s[n][e] = power2(x.s[n][e] * scale - less), x.sum[half] += x.s[n][e];
	}
}

// weigh makes weights of exponentials, and scales the result so far.
template <int D, int N> void weigh(Rows64<D, N>& x, const float (&by)[2]) {
#pragma unroll
	for (int k = 0; k < N / 16; k++) pack<N>(x.w, x.s, k);
	if (!__any_sync(AllLanes, by[0] != 1 || by[1] != 1)) return; // as it is for most tiles
#pragma unroll
	for (int n = 0; n < D / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++) x.o[0][n][e] *= by[e / 2];
}

// hide takes out the scores of keys that a row does not see.
template <int N> void hide(Scores<N>& s, const Heads<float>& x, u32 row, u32 col) {
	Lane<1> me;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		int end = min(x.s, x.seen(row + me.group + half * 8)) - col - me.col(0, 0); // so what it is compared with is known beforehand
#pragma unroll
		for (int n = 0; n < N / 8; n++)
#pragma unroll
			for (int e = half * 2; e < half * 2 + 2; e++)
				if (n * 8 + e % 2 >= end) s[n][e] = -INFINITY;
	}
}

// Quad is four warps and a piece of their work.
template <int D, int N, int W> struct Quad {
	typedef Ring<D, N, W> R;
	const R& ring;
	const Heads<float>& x;
	u32 quad, row0, row, tiles; // its number, its first row, that of the warp, and how many tiles there are
	u32 first, parity;          // the number of the first tile in the ring, and the parity of the phase in which queries are there
	bool last;                  // of the block's pieces

	u32 col(u32 n) const { return (tiles - 1 - n) * N; }
	u32 stage(u32 n) const { return (first + n) % R::Stages; }
	void release(Barrier b) const {
		__syncwarp();
		if (threadIdx.x % 32 == 0) b.arrive();
	}

	// keysOf waits for the keys of a tile, if there is one, and valuesOf for the values.
	void keysOf(u32 n) const {
		Turn t = Turn::of<R::Stages>(first + n);
		if (n < tiles) ring.full(t.stage, false).wait(t.parity);
	}
	void valuesOf(u32 n) const {
		Turn t = Turn::of<R::Stages>(first + n);
		ring.full(t.stage, true).wait(t.parity);
	}

	// begins the product for the scores of the n-th tile, whose keys are there.
	void scores(Scores<N>& s, u32 n) const {
		u64 q = matrix(ring.q + quad * 64 * RowBytes, 16), k = matrix(ring.keys(stage(n)), 16);
		begin();
#pragma unroll
		for (int c = 0; c < D / 16; c++) multiplyRows(s, further(q, c / 4 * R::Own + c % 4 * 32), further(k, c / 4 * R::Tile + c % 4 * 32), c > 0);
		commit();
	}

	// readKeys says that the keys of a tile are not needed any more; with those of the last, the queries are not.
	void readKeys(u32 n) const {
		release(ring.empty(stage(n), false));
		if (n + 1 == tiles) release(ring.noQueries());
	}

	// begins that of weights and the n-th tile's values, which are there.
	void combine(Scores<D>& o, const Factor<N>& w, u32 n) const {
		u64 v = matrix(ring.values(stage(n)), R::Tile);
		begin();
#pragma unroll
		for (int k = 0; k < N / 16; k++) multiplyHeld(o, w[k], further(v, k * 16 * RowBytes));
		commit();
	}

	void hidden(Scores<N>& s, u32 n) const {
		if (col(n) + N > min(x.s, x.seen(row))) hide<N>(s, x, row, col(n));
	}

	// spoiled says whether a tile has values that are not finite among those that not all of the 64 rows see. These wait for it.
	bool spoiled(u32 n) const {
		u32 all = x.seen(row0);
		if (!x.causal || col(n) + N <= all) return false;
		valuesOf(n);
		u32 over = 0; // an exponent of ones and one more
#pragma unroll 1
		for (u32 r = (all > col(n) ? all - col(n) : 0) + threadIdx.x % 128 / 8; r < N; r += 16)
#pragma unroll
			for (u32 c = 0; c < R::Columns; c++) {
				u32 m[4];
				asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
					: "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
					: "r"(ring.values(stage(n)) + c * R::Tile + r * RowBytes + threadIdx.x % 8 * 16)
					: "memory");
#pragma unroll
				for (int e = 0; e < 4; e++) over |= (m[e] & 0x7f807f80) + 0x00800080;
			}
		return __any_sync(AllLanes, anyOf(1 + W + quad, 128, (over & 0x80008000) != 0));
	}

	// Four warps begin their products in turns, so that one's exponentials are computed during another's products.
	void myTurn() const {
		if (W > 1) comeTo(1 + quad, 256);
	}
	void yourTurn(u32 n) const {
		if (W > 1 && (quad + 1 < W || n + 1 < tiles || !last)) passOn(1 + (quad + 1) % W, 256);
	}

	// care ends the work from the n-th tile's weights on, where values are not finite: what a row does not see has no part in it.
	void care(Rows64<D, N>& a, u32 n) const {
		Lines<64> at;
		for (;;) {
			valuesOf(n);
#pragma unroll
			for (int c = 0; c < R::Columns; c++) {
				Scores<64>(&half)[1] = (Scores<64>(&)[1])a.o[0][c * 8];
				Factor<N>(&w)[1] = (Factor<N>(&)[1])a.w;
				::combine<N, 64, 64, 1>(half, w, ring.values(stage(n)) + c * R::Tile, at.down, Diagonal<1>(x, row, col(n)));
			}
			release(ring.empty(stage(n), true));
			if (++n == tiles) return;
			keysOf(n);
			myTurn();
			scores(a.s, n);
			yourTurn(n);
			finish<0>();
			keep(a.s);
			readKeys(n);
			hidden(a.s, n);
			float by[2];
			lower(a, by, x.scale * Log2E);
			weigh(a, by);
		}
	}

	// work does all of it.
	void work(Rows64<D, N>& a) const {
#pragma unroll
		for (int half = 0; half < 2; half++) a.most[half] = -INFINITY, a.sum[half] = 0;
#pragma unroll
		for (int n = 0; n < D / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++) a.o[0][n][e] = 0;
		ring.queries().wait(parity);
		keysOf(0);
		float by[2];
		myTurn();
		scores(a.s, 0);
		yourTurn(0);
		finish<0>();
		keep(a.s);
		readKeys(0);
		hidden(a.s, 0);
		lower(a, by, x.scale * Log2E);
		weigh(a, by);
		keysOf(1);
		u32 n = 1;
		bool bad = spoiled(0);
#pragma unroll 1
		for (; n < tiles && !bad; bad = spoiled(n), n++) {
			keep(a.w), keep(a.o[0]);
			myTurn();
			scores(a.s, n);
			valuesOf(n - 1);
			combine(a.o[0], a.w, n - 1);
			yourTurn(n);
			finish<1>();
			keep(a.s);
			readKeys(n);
			hidden(a.s, n);
			lower(a, by, x.scale * Log2E);
			keep(a.s);
			keysOf(n + 1); // here, so that the compiler moves no exponentials behind the end of the products
			finish<0>();
			keep(a.o[0]);
			release(ring.empty(stage(n - 1), true));
			weigh(a, by);
		}
		if (bad) {
			care(a, n - 1);
			return;
		}
		valuesOf(n - 1);
		keep(a.w), keep(a.o[0]);
		combine(a.o[0], a.w, n - 1);
		finish<0>();
		keep(a.o[0]);
		release(ring.empty(stage(n - 1), true));
	}
};

// Registers of a thread that copies, and of others: together a processor's, which has as many for each thread before.
template <int W> constexpr int FewRegisters = W == 3 ? 32 : 24;
template <int W> constexpr int ManyRegisters = W == 3 ? 160 : 240;

// ended writes the result of a piece, and the logarithms of its sums.
template <int D, int N> void ended(Rows64<D, N>& a, const Rows<float>& to, float* sums, const Heads<float>& x, bool narrow, Place& here, u32 row) {
	float by[1][2];
	Lane<1> me;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float all = across(a.sum[half], plus<float>);
		by[0][half] = 1 / all;
		u32 r = row + me.group + half * 8;
		if (r < x.t && me.in == 0) sums[x.line(here.batch, here.head) + r] = a.most[half] * x.scale + logf(all);
	}
	here.row -= 64; // four warps have none
	give<D, 1>(to, narrow, here, x.t, x.d, a.o, by);
}

template <int D, int N, int W>
void attentionByFours(const Map& q, const Map& k, const Map& v, const Rows<float>& to, float* sums, const Heads<float>& x, bool narrow, u32 heads) {
	typedef Ring<D, N, W> R;
	__shared__ u64 barriers[R::Barriers];
	R ring(barriers);
	if (threadIdx.x == 0) ring.make(), made();
	__syncthreads();
	u32 warp = __shfl_sync(AllLanes, threadIdx.x / 32, 0); // so the compiler knows that it is one for all lanes
	if (warp < 4) {
		fewerRegisters<FewRegisters<W>>();
		if (threadIdx.x == 0) {
			prefetch(q), prefetch(k), prefetch(v);
			fill<D, N, W>(ring, q, k, v, x, heads);
		}
		return;
	}
	moreRegisters<ManyRegisters<W>>();
	u32 quad = warp / 4 - 1, all = Work<N, W>::all(x, heads), first = 0, parity = 0;
	if (W > 1 && quad + 1 == W) passOn(1, 256); // the first turn is that of the first
#pragma unroll 1
	for (u32 i = blockIdx.x; i < all; i += gridDim.x, parity ^= 1) {
		Work<N, W> here(x, heads, i);
		u32 row0 = here.row + quad * 64;
		Quad<D, N, W> four{ring, x, quad, row0, row0 + warp % 4 * 16, here.tiles, first, parity, i + gridDim.x >= all};
		Rows64<D, N> a;
		four.work(a);
		ended<D, N>(a, to, sums, x, narrow, here, four.row);
		first += here.tiles;
	}
}

// Of a kernel: the keys of a tile, and how many times 64 rows a block has. Package gpu knows them, too.
#define FOURS(D, N, W) \
	GLOBAL(128 * (W + 1), 1) attention_h_##D(const __grid_constant__ Map q, const __grid_constant__ Map k, const __grid_constant__ Map v, Rows<float> y, float* sums, \
		Heads<float> x, u32 narrow, u32 heads) { \
		attentionByFours<D, N, W>(q, k, v, y, sums, x, narrow != 0, heads); \
	}
