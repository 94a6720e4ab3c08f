#include "attention_tiles.cuh"

// Attention whose queries, keys, values, result and the gradient of that are bfloat16. The results are float32, or bfloat16 where `narrow` says so. D is the
// extent of heads, or more; a block computes C columns of a result.

// put writes a block's rows, those of either half of 16 times a number.
template <int C, int M> void put(const Head<float>& to, const Place& p, const Scores<C> (&o)[M], const float (&by)[M][2]) {
	Lane<M> me;
#pragma unroll
	for (int i = 0; i < M; i++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			u32 row = p.row + me.row(i, half * 2);
			if (row >= to.n) continue;
#pragma unroll
			for (int n = 0; n < C / 8; n++)
				if (p.col + n * 8 < to.d)
					*(float2*)(to.at + row * to.row + p.col + me.col(n, 0)) = make_float2(o[i][n][half * 2] * by[i][half], o[i][n][half * 2 + 1] * by[i][half]);
		}
}

// Of two tiles, a lane gives its neighbour what that has more of, so that both write four numbers at once, and a row's 32 bytes are written together.
template <int C, int M> void put(const Head<Bf16>& to, const Place& p, const Scores<C> (&o)[M], const float (&by)[M][2]) {
	Lane<M> me;
	bool odd = me.in % 2;
#pragma unroll
	for (int i = 0; i < M; i++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			u32 row = p.row + me.row(i, half * 2);
#pragma unroll
			for (int n = 0; n < C / 8; n += 2) {
				u32 a = Bf16::pair(o[i][n][half * 2] * by[i][half], o[i][n][half * 2 + 1] * by[i][half]);
				u32 b = Bf16::pair(o[i][n + 1][half * 2] * by[i][half], o[i][n + 1][half * 2 + 1] * by[i][half]);
				u32 got = shuffle(odd ? a : b, 1), col = p.col + (n + odd) * 8;
				if (row < to.n && col < to.d) *(uint2*)(to.at + row * to.row + col + me.in / 2 * 4) = odd ? make_uint2(got, b) : make_uint2(a, got);
			}
		}
}

// give is put for a result of n rows of a head.
template <int C, int M> void give(const Rows<float>& to, bool narrow, const Place& p, u32 n, u32 d, const Scores<C> (&o)[M], const float (&by)[M][2]) {
	if (narrow) {
		put<C, M>(Head<Bf16>(Rows<Bf16>{(Bf16*)to.at, to.batch, to.head, to.row}, p.batch, p.head, n, d), p, o, by);
	} else {
		put<C, M>(Head<float>(to, p.batch, p.head, n, d), p, o, by);
	}
}

// across reduces over the lanes that have the same rows.
template <class Op> float across(float v, Op op) {
	v = op(v, shuffle(v, 1));
	return op(v, shuffle(v, 2));
}

float larger(float a, float b) { return fmaxf(a, b); }

// unscaled is a number of the mask for scores that are not scaled yet: so it is multiplied by the inverse. Only -INFINITY hides: what is finite stays that
// when it is multiplied back, and by Log2E.
float unscaled(float x, float by) {
	float most = -FLT_MAX / 4 * fminf(by, 1), y = x * by;
	return y < most && x != -INFINITY ? most : y;
}

// mask adds the mask to 16 rows of scores.
template <int N, class B> void mask(Scores<N>& s, const B& b, u32 row, u32 col, float by) {
	Lane<1> me;
#pragma unroll
	for (int n = 0; n < N / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++) s[n][e] += unscaled(b.mask(row + me.group + e / 2 * 8, col + me.col(n, e)), by);
}

template <int N, class B> void maskTurned(Scores<N>& s, const B& b, u32 key, u32 col, float by) {
	Lane<1> me;
#pragma unroll
	for (int n = 0; n < N / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++) s[n][e] += unscaled(b.mask(col + me.col(n, e), key + me.group + e / 2 * 8), by);
}

// drop drops weights of 16 rows, or their gradients. Of a tile, two neighbours have half of one block of words of each row: each makes one.
template <int N, class B> void drop(Scores<N>& w, const B& b, u32 row, u32 col) {
	Lane<1> me;
	bool odd = me.in % 2;
#pragma unroll
	for (int n = 0; n < N / 8; n++) {
		uint4 q = b.quad(row + me.group + odd * 8, (col + n * 8) / 4 + me.in / 2);
		u32 one = shuffle(odd ? q.x : q.z, 1), two = shuffle(odd ? q.y : q.w, 1);
		w[n][0] = b.weight(odd ? one : q.x, w[n][0]), w[n][1] = b.weight(odd ? two : q.y, w[n][1]);
		w[n][2] = b.weight(odd ? q.z : one, w[n][2]), w[n][3] = b.weight(odd ? q.w : two, w[n][3]);
	}
}

// words are those of a tile of weights whose rows are keys. Four lanes have a part each of four blocks: each makes one.
template <class B> void wordsTurned(u32 (&w)[4], const B& b, u32 key, u32 col) {
	Lane<1> me;
	u32 m = me.group % 4;
	uint4 q = b.quad(col + me.in * 2 + m % 2, key / 4 + m / 2 * 2 + me.group / 4);
	w[0] = q.x, w[1] = q.y, w[2] = q.z, w[3] = q.w;
	turn<4>(w);
}

// soften makes of 16 rows of scores their exponentials, less the maximum so far, and scales the sums of the tiles before to it.
template <int N, int C> void soften(Scores<N>& s, float (&most)[2], float (&sum)[2], Scores<C>& o, float scale) {
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
		if (!__any_sync(AllLanes, by != 1)) continue; // as it is for most tiles
#pragma unroll
		for (int n = 0; n < C / 8; n++) o[n][half * 2] *= by, o[n][half * 2 + 1] *= by;
	}
}

template <int D, int C, int N, int M, int Threads, bool HeldQ, class X>
void attention(const Rows<float>& to, float* sums, const Rows<const Bf16>& q, const Rows<const Bf16>& k, const Rows<const Bf16>& v, const Heads<float>& x, bool narrow, const X& more) {
	constexpr u32 Tall = Threads / 2 * M;
	Lane<M> me;
	Queries here(x, Tall, C);
	u32 batch = here.batch, head = here.head, shared = head / x.share;
	Beside<float, X> beside(more, x, batch, head);
	Own<D, M, Threads, HeldQ> a(Head<const Bf16>(q, batch, head, x.t, x.d), here.row, HeldQ ? room() : room() + 4 * Bytes<N, D>);
	Fetch<N, D, Threads> nextK(Head<const Bf16>(k, batch, shared, x.s, x.d), 0), nextV(Head<const Bf16>(v, batch, shared, x.s, x.d), 0);
	u32 first = here.row + me.warp * (M * 16), high = x.seen(min(first + M * 16, x.t) - 1), end = x.seen(min(here.row + Tall, x.t) - 1);
	if (first >= x.t) high = 0;
	float most[M][2], sum[M][2];
	Scores<C> o[M] = {};
#pragma unroll
	for (int i = 0; i < M; i++) most[i][0] = most[i][1] = -INFINITY, sum[i][0] = sum[i][1] = 0;
	if (end > 0) nextK.next(room()), nextV.next(room() + Bytes<N, D>);
	Lines<D> at;
#pragma unroll 1
	for (u32 col = 0; col < end; col += N) {
		u32 tk = room() + col / N % 2 * 2 * Bytes<N, D>, tv = tk + Bytes<N, D>; // whoever still reads the others has come to the barrier before they are written
		u32 others = room() + (col / N + 1) % 2 * 2 * Bytes<N, D>;
		arrive();
		__syncthreads();
		if (col + N < end) nextK.next(others), nextV.next(others + Bytes<N, D>);
		if (col >= high) continue;
		Scores<N> s[M];
		scores<N, D, M>(s, a, tk + at.along);
		bool edge = col + N + M * 16 - 1 > high; // the first of the rows may see that many fewer
		Factor<N> w[M];
#pragma unroll
		for (int i = 0; i < M; i++) {
			if (beside.masks) mask<N>(s[i], beside, first + i * 16, col, 1 / x.scale);
			if (edge) {
#pragma unroll
				for (int n = 0; n < N / 8; n++)
#pragma unroll
					for (int e = 0; e < 4; e++)
						if (col + me.col(n, e) >= min(x.s, x.seen(here.row + me.row(i, e)))) s[i][n][e] = -INFINITY;
			}
			soften<N, C>(s[i], most[i], sum[i], o[i], x.scale * Log2E);
			if (beside.drops) drop<N>(s[i], beside, first + i * 16, col);
#pragma unroll
			for (int k = 0; k < N / 16; k++) pack<N>(w[i], s[i], k);
		}
		tv += here.col * 2;
		if (edge) {
			combine<N, D, C, M>(o, w, tv, at.down, Diagonal<1>(x, first, col));
		} else {
			combine<N, D, C, M>(o, w, tv + at.down);
		}
	}
	Queries there(x, Tall, C); // here again
	float by[M][2];
#pragma unroll
	for (int i = 0; i < M; i++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float all = across(sum[i][half], plus<float>);
			by[i][half] = x.s > 0 && !unseen(beside, most[i][half]) ? 1 / all : 0;
			u32 row = there.row + me.row(i, half * 2);
			if (row < x.t && me.in == 0 && there.col == 0) sums[x.line(there.batch, there.head) + row] = most[i][half] * x.scale + logf(all);
		}
	give<C, M>(to, narrow, there, x.t, x.d, o, by);
}

// attentionGradQ computes the gradient of queries, and of each row the product of the result with its gradient: the gradient of a score is
// p·(gp - that).
template <int D, int C, int N, int M, int Threads, class X>
void attentionGradQ(const Rows<float>& to, float* ygy, const Rows<const Bf16>& q, const Rows<const Bf16>& k, const Rows<const Bf16>& v, const Rows<const Bf16>& y,
	const float* sums, const Rows<const Bf16>& gy, const Heads<float>& x, bool narrow, const X& more) {
	constexpr u32 Tall = Threads / 2 * M;
	Lane<M> me;
	Queries here(x, Tall, C);
	u32 batch = here.batch, head = here.head, shared = head / x.share;
	Beside<float, X> beside(more, x, batch, head);
	Head<const Bf16> hy(y, batch, head, x.t, x.d), hg(gy, batch, head, x.t, x.d);
	Own<D, M, Threads, true> a(Head<const Bf16>(q, batch, head, x.t, x.d), here.row, room()), g(hg, here.row, room());
	float sum[M][2], dot[M][2];
#pragma unroll
	for (int i = 0; i < M; i++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			u32 row = here.row + me.row(i, half * 2);
			u64 at = x.line(batch, head) + row;
			sum[i][half] = dot[i][half] = 0;
			if (row < x.t) {
				float log = sums[at];
				sum[i][half] = unseen(beside, log) ? INFINITY : log * Log2E; // what sees nothing has no part in anything
#pragma unroll 2
				for (u32 c = me.in * 4; c < x.d; c += 16) {
					auto a = load<4>(hy.at + row * hy.row + c), b = load<4>(hg.at + row * hg.row + c);
					dot[i][half] += a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
				}
			}
			dot[i][half] = across(dot[i][half], plus<float>);
			if (row < x.t && me.in == 0 && here.col == 0) ygy[at] = dot[i][half];
		}
	Fetch<N, D, Threads> nextK(Head<const Bf16>(k, batch, shared, x.s, x.d), 0), nextV(Head<const Bf16>(v, batch, shared, x.s, x.d), 0);
	u32 first = here.row + me.warp * (M * 16), low = x.seen(first), high = x.seen(min(first + M * 16, x.t) - 1), end = x.seen(min(here.row + Tall, x.t) - 1);
	if (first >= x.t) high = 0;
	Scores<C> o[M] = {};
	if (end > 0) nextK.next(room()), nextV.next(room() + Bytes<N, D>);
	Lines<D> at;
#pragma unroll 1
	for (u32 col = 0; col < end; col += N) {
		u32 tk = room() + col / N % 2 * 2 * Bytes<N, D>, tv = tk + Bytes<N, D>; // whoever still reads the others has come to the barrier before they are written
		u32 others = room() + (col / N + 1) % 2 * 2 * Bytes<N, D>;
		arrive();
		__syncthreads();
		if (col + N < end) nextK.next(others), nextV.next(others + Bytes<N, D>);
		if (col >= high) continue;
		Factor<N> w[M];
#pragma unroll
		for (int k = 0; k < N; k += 16) { // some at a time, as registers are few
			Scores<16> s[M], p[M];
			scores<16, D, M>(s, a, further<D>(tk + at.along, k / 16, 0));
			scores<16, D, M>(p, g, further<D>(tv + at.along, k / 16, 0));
#pragma unroll
			for (int i = 0; i < M; i++) {
				if (beside.masks) mask<16>(s[i], beside, first + i * 16, col + k, 1 / x.scale);
				if (beside.drops) drop<16>(p[i], beside, first + i * 16, col + k);
#pragma unroll
				for (int n = 0; n < 2; n++)
#pragma unroll
					for (int e = 0; e < 4; e++) {
						s[i][n][e] = power2(s[i][n][e] * (x.scale * Log2E) - sum[i][e / 2]) * (p[i][n][e] - dot[i][e / 2]);
						if (col + N > low && col + k + me.col(n, e) >= min(x.s, x.seen(here.row + me.row(i, e)))) s[i][n][e] = 0;
					}
				Factor<16> packed;
				pack<16>(packed, s[i], 0);
#pragma unroll
				for (int e = 0; e < 4; e++) w[i][k / 16][e] = packed[0][e];
			}
		}
		tk += here.col * 2;
		if (col + N > low) {
			combine<N, D, C, M>(o, w, tk, at.down, Diagonal<1>(x, first, col));
		} else {
			combine<N, D, C, M>(o, w, tk + at.down);
		}
	}
	Queries there(x, Tall, C); // here again
	float by[M][2];
#pragma unroll
	for (int i = 0; i < M; i++) by[i][0] = by[i][1] = x.scale;
	give<C, M>(to, narrow, there, x.t, x.d, o, by);
}

// attentionGradKV computes the gradients of keys and values, of all heads that share them. Its scores are turned: a row is a key's.
template <int D, int C, int N, int M, int Threads, bool HeldV, class X>
void attentionGradKV(const Rows<float>& toK, const Rows<float>& toV, const Rows<const Bf16>& q, const Rows<const Bf16>& k, const Rows<const Bf16>& v,
	const float* sums, const float* ygy, const Rows<const Bf16>& gy, const Heads<float>& x, bool narrowK, bool narrowV, const X& more) {
	constexpr u32 Tall = Threads / 2 * M;
	Lane<M> me;
	Keys here(x, Tall, C);
	constexpr u32 Tiles = 4 * Bytes<N, D> + 512; // and the numbers of queries
	Own<D, M, Threads, true> a(Head<const Bf16>(k, here.batch, here.head, x.s, x.d), here.row, room());
	Own<D, M, Threads, HeldV> b(Head<const Bf16>(v, here.batch, here.head, x.s, x.d), here.row, HeldV ? room() : room() + Tiles);
	u32 first = here.row + me.warp * (M * 16), begin = 0; // the first query that sees the first key
	if (x.causal && here.row > x.s - x.t) begin = here.row - (x.s - x.t);
	Scores<C> ok[M] = {}, ov[M] = {};
	Lines<D> at;
	u32 tq = room(), tg = tq + Bytes<N, D>, numbers = tq + 4 * Bytes<N, D>;
	int flip = 2 * Bytes<N, D>, ahead = N * 8;
#pragma unroll 1
	for (u32 h = 0; h < x.share; h++) {
		u32 head = here.head * x.share + h;
		Beside<float, X> beside(more, x, here.batch, head);
		Fetch<N, D, Threads> nextQ(Head<const Bf16>(q, here.batch, head, x.t, x.d), begin), nextG(Head<const Bf16>(gy, here.batch, head, x.t, x.d), begin);
		const float *sumOf = sums + x.line(here.batch, head), *dotOf = ygy + x.line(here.batch, head);
		float nextSum = 0, nextDot = 0;
		auto next = [&](u32 col, u32 tile) {
			nextQ.next(tile), nextG.next(tile + Bytes<N, D>);
			u32 query = col + threadIdx.x;
			if (threadIdx.x >= N) return;
			nextSum = INFINITY, nextDot = 0; // what is no query, or sees nothing, has no part in anything
			if (query >= x.t) return;
			float log = sumOf[query];
			nextDot = dotOf[query];
			if (!unseen(beside, log)) nextSum = log * Log2E;
		};
		if (begin < x.t) next(begin, tq); // nobody reads that tile any more, of the head before
#pragma unroll 1
		for (u32 col = begin; col < x.t; col += N) {
			if (threadIdx.x < N) asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(numbers + threadIdx.x * 8), "f"(nextSum), "f"(nextDot) : "memory");
			arrive();
			__syncthreads();
			if (col + N < x.t) next(col + N, tq + flip);
			if (first < x.s && (!x.causal || first < x.seen(col + N - 1))) {
				bool edge = x.causal && first + M * 16 > x.seen(col);
				Diagonal<-1> d(x, first, col);
				Factor<N> ws[M], wg[M];
#pragma unroll
				for (int k = 0; k < N; k += 16) { // some at a time, as registers are few
					Scores<16> s[M], g[M];
					scores<16, D, M>(s, a, further<D>(tq + at.along, k / 16, 0));
					scores<16, D, M>(g, b, further<D>(tg + at.along, k / 16, 0));
#pragma unroll
					for (int i = 0; i < M; i++) {
						if (beside.masks) maskTurned<16>(s[i], beside, first + i * 16, col + k, 1 / x.scale);
#pragma unroll
						for (int n = 0; n < 2; n++) {
							float sum[2], dot[2];
							asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(sum[0]), "=f"(dot[0]), "=f"(sum[1]), "=f"(dot[1]) : "r"(numbers + (k + me.col(n, 0)) * 8) : "memory");
							u32 word[4] = {};
							if (beside.drops) wordsTurned(word, beside, first + i * 16, col + k + n * 8);
#pragma unroll
							for (int e = 0; e < 4; e++) {
								float p = power2(s[i][n][e] * (x.scale * Log2E) - sum[e % 2]), gp = g[i][n][e];
								s[i][n][e] = p;
								if (beside.drops) gp = beside.weight(word[e], gp), s[i][n][e] = beside.weight(word[e], p);
								g[i][n][e] = p * (gp - dot[e % 2]);
								if (edge && !d.sees(i * 16 + me.group + e / 2 * 8, k + me.col(n, e))) s[i][n][e] = g[i][n][e] = 0;
							}
						}
						Factor<16> packed;
						pack<16>(packed, s[i], 0);
#pragma unroll
						for (int e = 0; e < 4; e++) ws[i][k / 16][e] = packed[0][e];
						pack<16>(packed, g[i], 0);
#pragma unroll
						for (int e = 0; e < 4; e++) wg[i][k / 16][e] = packed[0][e];
					}
				}
				u32 cg = tg + here.col * 2, cq = tq + here.col * 2;
				if (edge) {
					combine<N, D, C, M>(ov, ws, cg, at.down, d);
					combine<N, D, C, M>(ok, wg, cq, at.down, d);
				} else {
					combine<N, D, C, M>(ov, ws, cg + at.down);
					combine<N, D, C, M>(ok, wg, cq + at.down);
				}
			}
			tq += flip, tg += flip, numbers += ahead, flip = -flip, ahead = -ahead;
		}
	}
	Keys there(x, Tall, C); // here again
	float by[M][2], one[M][2];
#pragma unroll
	for (int i = 0; i < M; i++) by[i][0] = by[i][1] = x.scale, one[i][0] = one[i][1] = 1;
	give<C, M>(toV, narrowV, there, x.s, x.d, ov, one);
	give<C, M>(toK, narrowK, there, x.s, x.d, ok, by);
}

// A kernel's name ends in D; one that takes More has that word in it. Of each: the columns of a block, the rows of a tile, 16 rows of a warp, threads, how
// many blocks a processor has at once, and whether a warp holds its rows in registers: Package gpu knows them, too.
#define FORWARD(D, more_, parameters, more, C, N, M, threads, blocks, held) \
	GLOBAL(threads, blocks) attention_##more_##b_##D(Rows<float> y, float* sums, Rows<const Bf16> q, Rows<const Bf16> k, Rows<const Bf16> v, Heads<float> x, \
		u32 narrow parameters) { \
		attention<D, C, N, M, threads, held>(y, sums, q, k, v, x, narrow != 0, more); \
	}
#define GRAD_Q(D, more_, parameters, more, C, N, M, threads, blocks) \
	GLOBAL(threads, blocks) attention_grad_q_##more_##b_##D(Rows<float> gq, float* ygy, Rows<const Bf16> q, Rows<const Bf16> k, Rows<const Bf16> v, \
		Rows<const Bf16> y, const float* sums, Rows<const Bf16> gy, Heads<float> x, u32 narrow parameters) { \
		attentionGradQ<D, C, N, M, threads>(gq, ygy, q, k, v, y, sums, gy, x, narrow != 0, more); \
	}
#define GRAD_KV(D, more_, parameters, more, C, N, M, threads, blocks, held) \
	GLOBAL(threads, blocks) attention_grad_kv_##more_##b_##D(Rows<float> gk, Rows<float> gv, Rows<const Bf16> q, Rows<const Bf16> k, Rows<const Bf16> v, \
		const float* sums, const float* ygy, Rows<const Bf16> gy, Heads<float> x, u32 narrowK, u32 narrowV parameters) { \
		attentionGradKV<D, C, N, M, threads, held>(gk, gv, q, k, v, sums, ygy, gy, x, narrowK != 0, narrowV != 0, more); \
	}
#define MORE , More<float> more
#define PLAIN(KIND, D, ...) KIND(D, , , None(), __VA_ARGS__)
#define WITH_MORE(KIND, D, ...) KIND(D, more_, MORE, more, __VA_ARGS__)
#define KERNEL(KIND, D, ...) \
	PLAIN(KIND, D, __VA_ARGS__) \
	WITH_MORE(KIND, D, __VA_ARGS__)
