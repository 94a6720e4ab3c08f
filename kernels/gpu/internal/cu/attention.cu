#include "common.cuh"
#include "diagonal.cuh"
#include "attention_more.cuh"

// Attention, tile by tile of the scores (Dao, "FlashAttention-2", arXiv:2307.08691). A block owns some rows, of queries or of keys, of one
// head, and walks over the rows of the other kind that see them, or are seen. What takes many rows of many elements goes through shared memory, C
// elements at a time. A result of more than C columns is made by several blocks, each of which computes the scores again.

// Tile is how many rows and columns of scores a block has at once. A thread has 4×4 of them: neighbours in a row, columns Across apart.
template <class T> constexpr u32 Tile = sizeof(T) == 4 ? 64 : 32;
template <class T> constexpr u32 Across = Tile<T> / 4;
template <class T> constexpr u32 Threads = Across<T>* Across<T>;
template <class T> constexpr u32 C = Tile<T>;
// Pitch is how far apart rows lie in shared memory: so neighbouring rows are in other banks.
template <class T> constexpr u32 Pitch = C<T> + Wide<T>;
template <class T> constexpr u32 Room = Tile<T>* Pitch<T>;

template <class T> struct Thread {
	u32 across = threadIdx.x % Across<T>, down = threadIdx.x / Across<T>;
	u32 row(int i) const { return down * 4 + i; }
	u32 col(int j) const { return across + j * Across<T>; }
	// place is the column of the k-th of a thread's elements of C.
	u32 place(int k) const { return (k / Wide<T> * Across<T> + across) * Wide<T> + k % Wide<T>; }
};

template <class T> using Scores = T[4][4];
template <class T> using Sums = T[4][C<T> / Across<T>];

// fetch puts a tile of rows into shared memory, V elements at a time, zeros where there is nothing.
template <int V, class T> void fetch(T* to, const Head<const T>& x, u32 row, u32 col) {
	constexpr u32 Each = C<T> / V, Ahead = V > 2 ? 4 : 1;
#pragma unroll Ahead
	for (u32 e = threadIdx.x; e < Tile<T> * Each; e += Threads<T>) {
		u32 r = e / Each, c = e % Each * V;
		Pack<T, V> p;
#pragma unroll
		for (int k = 0; k < V; k++) p[k] = 0;
		if (row + r < x.n && col + c < x.d) p = load<V>(x.at + (row + r) * x.row + col + c);
		store<V, T>(to + r * Pitch<T> + c, p);
	}
}

template <class T> void fetch(T* to, const Head<const T>& x, u32 row, u32 col) {
	if (x.packs) {
		fetch<Wide<T>>(to, x, row, col);
	} else {
		fetch<1>(to, x, row, col);
	}
}

// dots adds to the products of rows of a with rows of b, of so many elements.
template <class T> void dots(Scores<T>& s, const T* a, const T* b, u32 terms) {
	constexpr u32 W = Wide<T>;
	Thread<T> me;
	a += me.row(0) * Pitch<T>, b += me.col(0) * Pitch<T>;
#pragma unroll 1
	for (u32 c = 0; c < terms; c += W) {
		Pack<T, W> x[4], y[4];
#pragma unroll
		for (int i = 0; i < 4; i++) x[i] = load<W>(a + i * Pitch<T> + c), y[i] = load<W>(b + i * Across<T> * Pitch<T> + c);
#pragma unroll
		for (int k = 0; k < W; k++)
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int j = 0; j < 4; j++) s[i][j] += x[i][k] * y[j][k];
	}
}

// scores computes a tile of products of rows of x with rows of y. Rooms a and b are overwritten; what is `kept` lies in a already.
template <class T> void scores(Scores<T>& s, T* a, T* b, const Head<const T>& x, u32 row, const Head<const T>& y, u32 col, bool kept) {
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) s[i][j] = 0;
#pragma unroll 1
	for (u32 c = 0; c < x.d; c += C<T>) {
		__syncthreads(); // what was in the rooms has been read
		if (!kept) fetch(a, x, row, c);
		fetch(b, y, col, c);
		__syncthreads();
		dots(s, a, b, min(C<T>, x.d - c));
	}
}

// combine adds rows of x, from one on, C columns of each, weighed by a tile of which `terms` columns count. Room p takes the weights, b the rows. The
// diagonal is that of the thread's rows.
template <int Sign, class T> void combine(Sums<T>& o, const Scores<T>& weights, T* p, T* b, const Head<const T>& x, u32 row, u32 col, int terms, Diagonal<Sign> d) {
	constexpr int W = Wide<T>;
	Thread<T> me;
	__syncthreads(); // what was in the rooms has been read
	fetch(b, x, row, col);
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) p[me.row(i) * Pitch<T> + me.col(j)] = weights[i][j];
	__syncthreads();
	p += me.row(0) * Pitch<T>, b += me.place(0);
	// All four rows see the columns [from, to), W at a time; some see [first, last).
	int from = 0, to = terms, first = 0, last = 0;
	if (Sign > 0 && d.lead + 1 < terms) {
		first = to = max(d.lead + 1, 0) / W * W, last = min(max(d.lead + 4, 0), terms);
	} else if (Sign < 0 && d.lead < 3) {
		first = min(max(-d.lead, 0), terms), from = (3 - d.lead + W - 1) / W * W, last = min(from, terms);
	}
	const T *w = p + from, *y = b + from * Pitch<T>;
#pragma unroll 1
	for (int k = from; k < to; k += W) {
		Pack<T, W> weight[4];
#pragma unroll
		for (int i = 0; i < 4; i++) weight[i] = load<W>(w + i * Pitch<T>);
#pragma unroll
		for (int n = 0; n < W; n++)
#pragma unroll
			for (int g = 0; g < C<T> / Across<T>; g += W) {
				Pack<T, W> v = load<W>(y + n * Pitch<T> + g * Across<T>);
#pragma unroll
				for (int i = 0; i < 4; i++)
#pragma unroll
					for (int e = 0; e < W; e++) o[i][g + e] += weight[i][n] * v[e];
			}
		w += W, y += W * Pitch<T>;
	}
	w = p + first, y = b + first * Pitch<T>;
#pragma unroll 1
	for (int k = first; k < last; k++) {
#pragma unroll
		for (int g = 0; g < C<T> / Across<T>; g += W) {
			Pack<T, W> v = load<W>(y + g * Across<T>);
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int e = 0; e < W; e++) o[i][g + e] = d.sees(i, k) ? o[i][g + e] + w[i * Pitch<T>] * v[e] : o[i][g + e];
		}
		w++, y += Pitch<T>;
	}
}

// put writes sums, each row times a number.
template <class T> void put(const Head<T>& to, const Place& p, const Sums<T>& o, const T (&times)[4]) {
	constexpr u32 W = Wide<T>;
	Thread<T> me;
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int g = 0; g < C<T> / Across<T>; g += W) {
			u32 row = p.row + me.row(i), col = p.col + me.place(g);
			if (row >= to.n) continue;
			T* at = to.at + row * to.row + col;
			Pack<T, W> y;
#pragma unroll
			for (int e = 0; e < W; e++) y[e] = o[i][g + e] * times[i];
			if (to.packs) {
				if (col < to.d) give<W>(at, y);
			} else {
#pragma unroll
				for (int e = 0; e < W; e++)
					if (col + e < to.d) at[e] = y[e];
			}
		}
}

// along reduces over the threads that have the same rows.
template <class T, class Op> T along(T v, Op op) {
	for (u32 o = Across<T> / 2; o > 0; o /= 2) v = op(v, shuffle(v, o));
	return v;
}

template <class A> A larger(A a, A b) { return fmax(a, b); }

// base is what to subtract of scores whose maximum is m: where all are -infinity the sum is 0, so that it comes to NaN in the end.
template <class T> T base(T m) { return m == -INFINITY ? 0 : m; }

// drop drops weights of a tile, or their gradients. Four threads have the weights of four rows and as many blocks of words: each makes those of a row.
template <class T, class B> void drop(Scores<T>& w, const B& b, u32 row, u32 col) {
	Thread<T> me;
#pragma unroll
	for (int j = 0; j < 4; j++) {
		uint4 q = b.quad(row + me.row(me.across % 4), (col + me.col(j)) / 4);
		u32 word[4] = {q.x, q.y, q.z, q.w};
		turn<1>(word);
#pragma unroll
		for (int i = 0; i < 4; i++) w[i][j] = b.weight(word[i], w[i][j]);
	}
}

// dropTurned does so where a row is a key's: a thread's four rows are a block of words.
template <class T, class B> void dropTurned(Scores<T>& w, const B& b, u32 key, u32 col) {
	Thread<T> me;
#pragma unroll
	for (int j = 0; j < 4; j++) {
		uint4 q = b.quad(col + me.col(j), (key + me.row(0)) / 4);
		w[0][j] = b.weight(q.x, w[0][j]), w[1][j] = b.weight(q.y, w[1][j]), w[2][j] = b.weight(q.z, w[2][j]), w[3][j] = b.weight(q.w, w[3][j]);
	}
}

// soften makes of a tile of scores their exponentials, less the maximum so far, and scales the sums of the tiles before to it.
template <class T, class B> void soften(Scores<T>& s, T (&most)[4], T (&sum)[4], Sums<T>& o, const Heads<T>& x, const B& b, u32 row, u32 col) {
	Thread<T> me;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		T m = most[i];
#pragma unroll
		for (int j = 0; j < 4; j++) {
			u32 query = row + me.row(i), key = col + me.col(j);
			s[i][j] = x.sees(query, key) ? s[i][j] * x.scale : -INFINITY;
			if (b.masks) s[i][j] += b.mask(query, key);
			m = fmax(m, s[i][j]);
		}
		m = along(m, larger<T>);
		T by = exp(most[i] - base(m));
		most[i] = m, sum[i] *= by;
#pragma unroll
		for (int j = 0; j < 4; j++) s[i][j] = exp(s[i][j] - base(m)), sum[i] += s[i][j];
#pragma unroll
		for (int k = 0; k < C<T> / Across<T>; k++) o[i][k] *= by;
	}
}

template <class T, class M>
void attention(const Rows<T>& to, T* sums, const Rows<const T>& q, const Rows<const T>& k, const Rows<const T>& v, const Heads<T>& x, const M& more) {
	T *a = shared<T>(), *b = a + Room<T>, *p = b + Room<T>;
	Queries here(x, Tile<T>, C<T>);
	u32 n = here.batch, h = here.head;
	Thread<T> me;
	Beside<T, M> beside(more, x, n, h);
	Head<const T> hq(q, n, h, x.t, x.d), hk(k, n, h / x.share, x.s, x.d), hv(v, n, h / x.share, x.s, x.d);
	T most[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, sum[4] = {};
	Sums<T> o = {};
	u32 end = x.seen(min(here.row + Tile<T>, x.t) - 1);
#pragma unroll 1
	for (u32 col = 0; col < end; col += Tile<T>) {
		Scores<T> s;
		scores(s, a, b, hq, here.row, hk, col, x.d <= C<T> && col > 0);
		soften(s, most, sum, o, x, beside, here.row, col);
		if (beside.drops) drop(s, beside, here.row, col);
		combine(o, s, p, b, hv, col, here.col, min(Tile<T>, end - col), Diagonal<1>(x, here.row + me.row(0), col));
	}
	T by[4];
#pragma unroll
	for (int i = 0; i < 4; i++) {
		sum[i] = along(sum[i], plus<T>);
		by[i] = x.s > 0 && !unseen(beside, most[i]) ? 1 / sum[i] : 0;
		u32 row = here.row + me.row(i);
		if (row < x.t && me.across == 0 && here.col == 0) sums[x.line(n, h) + row] = most[i] + log(sum[i]);
	}
	put(Head<T>(to, n, h, x.t, x.d), here, o, by);
}

// attentionGradQ computes the gradient of queries, and of each row the product of the result with its gradient: the gradient of a score is
// p·(gp - that), as that is the sum of p·gp.
template <class T, class M>
void attentionGradQ(const Rows<T>& to, T* ygy, const Rows<const T>& q, const Rows<const T>& k, const Rows<const T>& v, const Rows<const T>& y, const T* sums, const Rows<const T>& gy, const Heads<T>& x, const M& more) {
	T *a = shared<T>(), *b = a + Room<T>, *room = b + Room<T>;
	Thread<T> me;
	Queries here(x, Tile<T>, C<T>);
	u32 n = here.batch, h = here.head;
	Beside<T, M> beside(more, x, n, h);
	Head<const T> hq(q, n, h, x.t, x.d), hk(k, n, h / x.share, x.s, x.d), hv(v, n, h / x.share, x.s, x.d), hy(y, n, h, x.t, x.d), hg(gy, n, h, x.t, x.d);
	T sum[4] = {}, dot[4] = {}, by[4] = {x.scale, x.scale, x.scale, x.scale};
#pragma unroll
	for (int i = 0; i < 4; i++) {
		u32 row = here.row + me.row(i);
		u64 at = x.line(n, h) + row;
		if (row < x.t) {
			sum[i] = sums[at];
			if (unseen(beside, sum[i])) sum[i] = INFINITY; // so it has no part in anything
			for (u32 c = me.across; c < x.d; c += Across<T>) dot[i] += hy.at[row * hy.row + c] * hg.at[row * hg.row + c];
		}
		dot[i] = along(dot[i], plus<T>);
		if (row < x.t && me.across == 0 && here.col == 0) ygy[at] = dot[i];
	}
	Sums<T> o = {};
	u32 end = x.seen(min(here.row + Tile<T>, x.t) - 1);
#pragma unroll 1
	for (u32 col = 0; col < end; col += Tile<T>) {
		Scores<T> s, g;
		scores(s, a, b, hq, here.row, hk, col, false);
		scores(g, a, b, hg, here.row, hv, col, false);
		if (beside.drops) drop(g, beside, here.row, col);
#pragma unroll
		for (int i = 0; i < 4; i++)
#pragma unroll
			for (int j = 0; j < 4; j++) {
				u32 query = here.row + me.row(i), key = col + me.col(j);
				T score = s[i][j] * x.scale;
				if (beside.masks) score += beside.mask(query, key);
				s[i][j] = x.sees(query, key) ? exp(score - sum[i]) * (g[i][j] - dot[i]) : 0;
			}
		combine(o, s, room, b, hk, col, here.col, min(Tile<T>, end - col), Diagonal<1>(x, here.row + me.row(0), col));
	}
	put(Head<T>(to, n, h, x.t, x.d), here, o, by);
}

// attentionGradKV computes the gradients of keys and values, of all heads that share them. Its tiles are turned: a row of scores is a key's.
template <class T, class M>
void attentionGradKV(const Rows<T>& toK, const Rows<T>& toV, const Rows<const T>& q, const Rows<const T>& k, const Rows<const T>& v, const T* sums, const T* ygy, const Rows<const T>& gy, const Heads<T>& x, const M& more) {
	T *a = shared<T>(), *b = a + Room<T>, *room = b + Room<T>;
	Thread<T> me;
	Keys here(x, Tile<T>, C<T>);
	u32 n = here.batch;
	Head<const T> hk(k, n, here.head, x.s, x.d), hv(v, n, here.head, x.s, x.d);
	Sums<T> ok = {}, ov = {};
	u32 begin = 0; // the first query that sees the first key
	if (x.causal && here.row > x.s - x.t) begin = (here.row - (x.s - x.t)) / Tile<T> * Tile<T>;
#pragma unroll 1
	for (u32 h = here.head * x.share; h < (here.head + 1) * x.share; h++) {
		Beside<T, M> beside(more, x, n, h);
		Head<const T> hq(q, n, h, x.t, x.d), hg(gy, n, h, x.t, x.d);
		const T *sumOf = sums + x.line(n, h), *dotOf = ygy + x.line(n, h);
#pragma unroll 1
		for (u32 col = begin; col < x.t; col += Tile<T>) {
			Scores<T> p, g;
			scores(p, a, b, hk, here.row, hq, col, false);
			scores(g, a, b, hv, here.row, hg, col, false);
			if (beside.drops) dropTurned(g, beside, here.row, col);
#pragma unroll
			for (int j = 0; j < 4; j++) {
				u32 query = col + me.col(j);
				T sum = query < x.t ? sumOf[query] : 0, dot = query < x.t ? dotOf[query] : 0;
				if (unseen(beside, sum)) sum = INFINITY; // so it has no part in anything
#pragma unroll
				for (int i = 0; i < 4; i++) {
					u32 key = here.row + me.row(i);
					bool sees = x.sees(query, key);
					T score = p[i][j] * x.scale;
					if (beside.masks) score += beside.mask(query, key);
					p[i][j] = sees ? exp(score - sum) : 0;
					g[i][j] = sees ? p[i][j] * (g[i][j] - dot) : 0;
				}
			}
			if (beside.drops) dropTurned(p, beside, here.row, col);
			u32 terms = min(Tile<T>, x.t - col);
			Diagonal<-1> d(x, here.row + me.row(0), col);
			combine(ov, p, room, b, hg, col, here.col, terms, d);
			combine(ok, g, room, b, hq, col, here.col, terms, d);
		}
	}
	T one[4] = {1, 1, 1, 1}, by[4] = {x.scale, x.scale, x.scale, x.scale};
	put(Head<T>(toV, n, here.head, x.s, x.d), here, ov, one);
	put(Head<T>(toK, n, here.head, x.s, x.d), here, ok, by);
}

// A kernel that takes More has that word in its name.
#define KERNELS_OF(T, end, more_, parameters, more) \
	GLOBAL(Threads<T>) attention##more_##end(Rows<T> y, T* sums, Rows<const T> q, Rows<const T> k, Rows<const T> v, Heads<T> x parameters) { \
		attention(y, sums, q, k, v, x, more); \
	} \
	GLOBAL(Threads<T>) attention_grad_q##more_##end(Rows<T> gq, T* ygy, Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<const T> y, const T* sums, \
		Rows<const T> gy, Heads<T> x parameters) { \
		attentionGradQ(gq, ygy, q, k, v, y, sums, gy, x, more); \
	} \
	GLOBAL(Threads<T>) attention_grad_kv##more_##end(Rows<T> gk, Rows<T> gv, Rows<const T> q, Rows<const T> k, Rows<const T> v, const T* sums, const T* ygy, \
		Rows<const T> gy, Heads<T> x parameters) { \
		attentionGradKV(gk, gv, q, k, v, sums, ygy, gy, x, more); \
	}
#define MORE(T) , More<T> more
#define KERNELS(T, end) \
	KERNELS_OF(T, end, _, , None()) \
	KERNELS_OF(T, end, _more_, MORE(T), more)
BOTH(KERNELS)
