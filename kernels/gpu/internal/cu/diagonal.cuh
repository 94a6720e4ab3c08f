// Diagonal is where a tile of scores has the last keys that queries see. Its row r and column c see each other where lead + Sign·(r - c) >= 0: rows are
// queries where Sign is 1, and keys where it is -1. What does not see another is not multiplied by the weight of 0 that it has: the product of 0 with
// what is not finite is NaN.
template <int Sign> struct Diagonal {
	int lead;

	// Row and col are those of the tile's first score.
	template <class T> Diagonal(const Heads<T>& x, u32 row, u32 col) : lead(x.causal ? (int)(x.s - x.t) + Sign * (int)(row - col) : 1 << 30) {
		asm volatile("" : "+r"(lead)); // so what is made of it is made where it is needed, not for every tile
	}

	bool sees(int row, int col) const { return lead + Sign * (row - col) >= 0; }
};
