// What all kernels share. Kernels are templates over the type T that memory holds; they compute in its Num<T>::A, which is T but for narrow types.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// Bf16 is a bfloat16: the upper half of a float. What makes one needs compute_80.
struct Bf16 {
	unsigned short bits;

	Bf16() = default;
	Bf16(float v) : bits(pair(v, 0)) {}
	operator float() const { return __uint_as_float((u32)bits << 16); }

	// pair rounds two numbers to the nearest, to even where two are as near; low is the lower half.
	static u32 pair(float low, float high) {
		u32 v;
		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
		return v;
	}

	static float low(u32 pair) { return __uint_as_float(pair << 16); }
	static float high(u32 pair) { return __uint_as_float(pair & 0xffff0000); }
};

template <class T> struct Num { typedef T A; };
template <> struct Num<Bf16> { typedef float A; };
template <class T> using Acc = typename Num<T>::A;

// Wide is how many elements make an access of 16 bytes.
template <class T> constexpr int Wide = 16 / sizeof(T);
// Batch is how many accesses of V elements a thread begins before it waits for the first: narrow ones would fetch too little at a time.
template <class T, int V> constexpr int Batch = V > 1 ? 1 : sizeof(T) <= 4 ? 4 : 2;

constexpr u32 AllLanes = 0xffffffff;
#define INFINITY __int_as_float(0x7f800000)
#define FLT_MAX __int_as_float(0x7f7fffff)
#define NAN __int_as_float(0x7fc00000)

// Pack is what one access moves: V elements.
template <class A, int V> struct Pack {
	A v[V];
	A& operator[](int k) { return v[k]; }
	const A& operator[](int k) const { return v[k]; }
};

template <int V, class T> Pack<Acc<T>, V> load(const T* at) {
	Pack<Acc<T>, V> p;
	if constexpr (V == 1) {
		p[0] = at[0];
	} else if constexpr (V * sizeof(T) > 16) {
		auto a = load<V / 2>(at), b = load<V / 2>(at + V / 2);
#pragma unroll
		for (int k = 0; k < V / 2; k++) p[k] = a[k], p[V / 2 + k] = b[k];
	} else if constexpr (sizeof(T) == 2 && V == 4) {
		uint2 q = *(const uint2*)at;
		p[0] = T::low(q.x), p[1] = T::high(q.x), p[2] = T::low(q.y), p[3] = T::high(q.y);
	} else if constexpr (sizeof(T) == 2) {
		uint4 q = *(const uint4*)at;
		const u32 two[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
		for (int k = 0; k < 4; k++) p[2 * k] = T::low(two[k]), p[2 * k + 1] = T::high(two[k]);
	} else if constexpr (sizeof(T) == 4) {
		float4 q = *(const float4*)at;
		p[0] = q.x, p[1] = q.y, p[2] = q.z, p[3] = q.w;
	} else {
		double2 q = *(const double2*)at;
		p[0] = q.x, p[1] = q.y;
	}
	return p;
}

// Any writes one access to memory of any kind.
struct Any {
	template <class W> static void put(void* at, const W& v) { *(W*)at = v; }
};

// Global writes one to global memory, whatever the compiler thinks: it cuts some into those of one element, which fill sectors by parts.
struct Global {
	static void put(void* at, const uint2& v) { asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(at)), "r"(v.x), "r"(v.y) : "memory"); }
	static void put(void* at, const uint4& v) {
		asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(at)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
	}
	static void put(void* at, const float4& v) {
		asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(at)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
	}
	static void put(void* at, const double2& v) { asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(at)), "d"(v.x), "d"(v.y) : "memory"); }
};

template <class Memory, int V, class T> void put(T* at, const Pack<Acc<T>, V>& p) {
	if constexpr (V == 1) {
		at[0] = p[0];
	} else if constexpr (V * sizeof(T) > 16) {
		Pack<Acc<T>, V / 2> a, b;
#pragma unroll
		for (int k = 0; k < V / 2; k++) a[k] = p[k], b[k] = p[V / 2 + k];
		put<Memory, V / 2>(at, a), put<Memory, V / 2>(at + V / 2, b);
	} else if constexpr (sizeof(T) == 2 && V == 4) {
		Memory::put(at, make_uint2(T::pair(p[0], p[1]), T::pair(p[2], p[3])));
	} else if constexpr (sizeof(T) == 2) {
		Memory::put(at, make_uint4(T::pair(p[0], p[1]), T::pair(p[2], p[3]), T::pair(p[4], p[5]), T::pair(p[6], p[7])));
	} else if constexpr (sizeof(T) == 4) {
		Memory::put(at, make_float4(p[0], p[1], p[2], p[3]));
	} else {
		Memory::put(at, make_double2(p[0], p[1]));
	}
}

// store is put to any memory, and give is put of a result.
template <int V, class T> void store(T* at, const Pack<Acc<T>, V>& p) { put<Any, V>(at, p); }
template <int V, class T> void give(T* at, const Pack<Acc<T>, V>& p) { put<Global, V>(at, p); }

// inPacks says whether rows of n elements can be accessed by 16 bytes: all tensors begin at multiples of that.
template <class T> bool inPacks(u32 n) { return n % Wide<T> == 0; }

// shared is the launch's dynamic shared memory.
template <class A> A* shared() {
	extern __shared__ __align__(16) unsigned char dynamicMemory[];
	return (A*)dynamicMemory;
}

template <class A> A shuffle(A v, u32 other) { return __shfl_xor_sync(AllLanes, v, other); }

// Group is the threads that work on a row together: a power of two of neighbours in a warp, or the whole block, which is one too.
struct Group {
	u32 size, rank, slot, slots; // slot: the row's number among the block's

	explicit Group(u32 size) : size(size), rank(threadIdx.x & (size - 1)), slot(threadIdx.x / size), slots(blockDim.x / size) {}

	// reduce gives every thread what op makes of all threads' v; op must not mind the order of two. All threads of the block call it. Room is
	// shared memory for 32.
	template <class V, class Op> V reduce(V v, V* room, Op op) const {
		for (u32 o = (size < 32 ? size : 32) / 2; o > 0; o /= 2) v = op(v, shuffle(v, o));
		if (size > 32) {
			u32 warps = size / 32, lane = threadIdx.x % 32;
			__syncthreads(); // what was in the room has been read
			if (lane == 0) room[threadIdx.x / 32] = v;
			__syncthreads();
			v = room[lane & (warps - 1)];
			for (u32 o = warps / 2; o > 0; o /= 2) v = op(v, shuffle(v, o));
		}
		return v;
	}

	// each calls fn with the first of every B*V elements that are this thread's, of a row of n: V by V, with those of others between.
	template <int V, int B, class Fn> void each(u32 n, Fn fn) const {
#pragma unroll 1
		for (u32 c = rank * V; c < n; c += size * V * B) fn(c);
	}

	// place is where in the row element k lies of those that each's c stands for.
	template <int V> u32 place(u32 c, int k) const { return c + k / V * size * V + k % V; }

	// inside says whether that place is one of the row's n.
	template <int V, int B> bool inside(u32 c, int k, u32 n) const { return B == 1 || place<V>(c, k) < n; }

	// fetch reads the elements of each's c, absent beyond the row's end.
	template <int V, int B, class T> Pack<Acc<T>, V * B> fetch(const T* row, u32 c, u32 n, Acc<T> absent) const {
		if constexpr (B == 1) {
			return load<V>(row + c);
		} else {
			Pack<Acc<T>, V * B> all;
#pragma unroll
			for (int b = 0; b < B; b++, c += size * V) {
				Pack<Acc<T>, V> p;
				if (c < n) p = load<V>(row + c);
#pragma unroll
				for (int k = 0; k < V; k++) all[b * V + k] = c < n ? p[k] : absent;
			}
			return all;
		}
	}

	// put writes what fetch reads.
	template <int V, int B, class Memory = Any, class T> void put(T* row, u32 c, u32 n, const Pack<Acc<T>, V * B>& all) const {
#pragma unroll
		for (int b = 0; b < B; b++, c += size * V) {
			Pack<Acc<T>, V> p;
#pragma unroll
			for (int k = 0; k < V; k++) p[k] = all[b * V + k];
			if (B > 1 && c >= n) continue;
			::put<Memory, V>(row + c, p);
		}
	}

	// give writes a part of a result.
	template <int V, int B, class T> void give(T* row, u32 c, u32 n, const Pack<Acc<T>, V * B>& all) const { put<V, B, Global>(row, c, n, all); }
};

template <class A> A plus(A a, A b) { return a + b; }

// meanOf is what one block makes of n numbers.
template <class T, class A> void meanOf(T* mean, const A* of, u32 n) {
	__shared__ double room[32];
	double s = 0;
	for (u32 k = threadIdx.x; k < n; k += blockDim.x) s += of[k];
	s = Group(blockDim.x).reduce(s, room, plus<double>);
	if (threadIdx.x == 0) *mean = s / n;
}

// Ids are indices or labels, of 4 or 8 bytes.
struct Ids {
	const void* at;
	bool wide;

	i64 operator[](u64 k) const { return wide ? ((const i64*)at)[k] : ((const int*)at)[k]; }
};

// Fault is the GPU's record of what kernels find wrong, and the code that a launch reports under, with the number of its run's flag in the upper half. Of all positions that
// are reported, the record comes to name the first: its word 2 is the position's complement, which only grows. Word 4 has the flags of all who reported something.
struct Fault {
	u64* record;
	u64 code;

	// told says whether one of some flags is up in a record, which this kernel does not write.
	static bool told(const u64* record, u64 heed) { return (record[4] & heed) != 0; }

	// index checks an id, of count, against [0, n).
	bool index(const Ids& ids, u64 k, u64 count, u64 n) const {
		i64 id = ids[k];
		if (id >= 0 && id < n) return true;
		atomicOr(record + 4, 1ull << (code >> 32));
		u64 was = atomicCAS(record, 0ull, code);
		if (was != 0 && was != code) return false; // an earlier launch's
		atomicExch(record + 3, n);
		u64 seen = max(atomicMax(record + 2, ~k), ~k);
		for (;;) { // whoever writes last has seen the last position
			if (~seen < count) atomicExch(record + 1, ids[~seen]); // it is another run's where it is not among the ids
			__threadfence();
			u64 now = atomicMax(record + 2, 0ull);
			if (now == seen) return false;
			seen = now;
		}
	}
};

// Keys are ids in order: an id in the upper half of each, its position in the lower. NoId is what is no id of a row.
constexpr u32 NoId = 0xffffffff;

// Segment is the positions [from, to) of the keys that have an id, where it begins at position k, and is that of a row.
struct Segment {
	u32 from, to;
	u64 id;
	bool mine;

	Segment(const u64* keys, u32 count, u64 rows, u32 k) : from(k), to(k), id(NoId) {
		if (k < count) id = keys[k] >> 32;
		mine = id < rows && (k == 0 || keys[k - 1] >> 32 != id);
		if (!mine) return;
		while (to < count && keys[to] >> 32 == id) to++;
	}
};

// Rows are an operand or a result of attention: of batch b and head h, row r begins at at + b·batch + h·head + r·row.
template <class T> struct Rows {
	T* at;
	i64 batch, head, row;
};

// Heads are the extents of attention.
template <class T> struct Heads {
	T scale;                   // of scores
	u32 t, s, d, heads, share; // rows of queries, of keys, their extent, heads of queries, and how many of those have the keys of one
	u32 causal, slices;        // blocks that share the columns of a result
	u32 quads;                 // of four keys

	// seen is how many keys a row of queries sees.
	u32 seen(u32 query) const { return causal ? s - t + query + 1 : s; }
	bool sees(u32 query, u32 key) const { return query < t && key < s && key < seen(query); }
	// line is where the numbers of a head of queries begin, one for each row.
	u64 line(u32 batch, u32 head) const { return ((u64)batch * heads + head) * t; }
};

// Place is what a block computes: rows of a head, from one on, and columns from one on.
struct Place {
	u32 batch, head, row, col;

	// A block has `tall` rows and `wide` columns. Of a head, the last come first where `backwards`.
	template <class T> Place(const Heads<T>& x, u32 heads, u32 rows, u32 tall, u32 wide, bool backwards) {
		u32 tiles = (rows + tall - 1) / tall, n;
		asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(n)); // so a second place needs no registers meanwhile
		col = n % x.slices * wide, n /= x.slices;
		row = n % tiles, n /= tiles;
		if (backwards) row = tiles - 1 - row;
		row *= tall;
		head = n % heads, batch = n / heads;
	}
};

// Queries is a place of rows of queries, and Keys of keys.
struct Queries : Place {
	template <class T> Queries(const Heads<T>& x, u32 tall, u32 wide) : Place(x, x.heads, x.t, tall, wide, true) {}
};
struct Keys : Place {
	template <class T> Keys(const Heads<T>& x, u32 tall, u32 wide) : Place(x, x.heads / x.share, x.s, tall, wide, false) {}
};

// Head is the rows of one head, n of them.
template <class T> struct Head {
	T* at;
	i64 row;
	u32 n, d;
	bool packs; // it can be accessed by 16 bytes

	Head(const Rows<T>& x, u32 batch, u32 head, u32 n, u32 d) : at(x.at + batch * x.batch + head * x.head), row(x.row), n(n), d(d) {
		constexpr u32 W = 16 / sizeof(T);
		packs = (u64)at % 16 == 0 && row % W == 0 && d % W == 0;
	}
};

// BOTH makes the kernels of a file, a macro of a type and of how names end.
#define BOTH(KERNELS) \
	KERNELS(float, f32) \
	KERNELS(double, f64)
#define GLOBAL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
