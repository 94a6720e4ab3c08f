#include "philox.cuh"

// More is what few ask attention for: a mask, which is added to the scores, and weights that are dropped. Where there is none, its address is 0.
template <class T> struct More {
	const T* mask;
	i64 batch, head, row, col; // strides are 0 where it has one number for all
	const Key* key;
	u64 threshold; // a weight is kept where its word is below
	double kept;   // and multiplied by this
};

// None stands for More where nobody asks for it: so kernels without it hold no registers for it.
struct None {};

// Beside is More of one head. A row of weights has `quads` blocks of words.
template <class T, class M> struct Beside {
	static constexpr bool Is = false;
	bool masks = false, drops = false;
	Beside(const M&, const Heads<T>&, u32, u32) {}
	T mask(u32, u32) const { return 0; }
	uint4 quad(u32, u32) const { return make_uint4(0, 0, 0, 0); }
	T weight(u32, T w) const { return w; }
};

template <class T> struct Beside<T, More<T>> {
	static constexpr bool Is = true;
	const T* at;
	i64 row, col;
	u32 t, s, quads;
	bool masks, drops;
	Key key;
	u64 threshold, line;
	T kept;

	Beside(const More<T>& m, const Heads<T>& x, u32 batch, u32 head)
		: at(m.mask + batch * m.batch + head * m.head), row(m.row), col(m.col), t(x.t), s(x.s), quads(x.quads), masks(m.mask != 0), drops(m.key != 0),
		  threshold(m.threshold), line(x.line(batch, head)), kept(m.kept) {
		key.seed = key.counter = 0;
		if (drops) key = *m.key;
	}

	// mask is what is added to a score.
	T mask(u32 query, u32 k) const { return query < t && k < s ? at[query * row + k * col] : 0; }

	// quad is the words of four weights of a row.
	uint4 quad(u32 query, u32 n) const { return words(key, (line + query) * quads + n); }

	// weight is what is left of a weight, or of its gradient, whose word this is.
	T weight(u32 word, T w) const { return word < threshold ? w * kept : 0; }
};

// unseen says whether the logarithm of a sum is that of a row that sees nothing for its mask.
template <class B, class T> bool unseen(const B& b, T sum) { return b.masks && sum == -INFINITY; }

// turn gives each of four lanes, By apart, its word of all four's.
template <int By> void turn(u32 (&w)[4]) {
	bool odd = threadIdx.x / By % 2, high = threadIdx.x / By / 2 % 2;
#pragma unroll
	for (int k = 0; k < 4; k += 2) {
		u32 got = shuffle(odd ? w[k] : w[k + 1], By);
		(odd ? w[k] : w[k + 1]) = got;
	}
#pragma unroll
	for (int k = 0; k < 2; k++) {
		u32 got = shuffle(high ? w[k] : w[k + 2], 2 * By);
		(high ? w[k] : w[k + 2]) = got;
	}
}
