#include "common.cuh"

// Rows by their ids: gather, the sums of rows that have one id, and the order of ids. Nothing depends on which thread comes first.

// gather copies row ids[k] of a table, for each k; one that is not there is NaN.
template <class T, int V> void gatherRow(T* o, const T* table, const Ids& ids, u32 count, u64 rows, u32 n, const Group& g, const Fault& fault) {
	u32 k = blockIdx.x * g.slots + g.slot;
	if (k >= count) return;
	i64 id = ids[k];
	constexpr int B = Batch<T, V>;
	o += (u64)k * n;
	if (id < 0 || id >= rows) {
		if (g.rank == 0) fault.index(ids, k, count, rows);
		for (u32 c = g.rank; c < n; c += g.size) o[c] = NAN;
		return;
	}
	g.each<V, B>(n, [&](u32 c) { g.give<V, B>(o, c, n, g.fetch<V, B>(table + id * n, c, n, 0)); });
}

template <class T> void gather(T* o, const T* table, const Ids& ids, u32 count, u32 n, u32 lanes, u64 rows, const Fault& fault) {
	Group g(lanes);
	if (inPacks<T>(n)) {
		gatherRow<T, Wide<T>>(o, table, ids, count, rows, n, g, fault);
	} else {
		gatherRow<T, 1>(o, table, ids, count, rows, n, g, fault);
	}
}

// The order of keys is Batcher's bitonic sorting network: steps of a size and a stride, each of which puts the keys in order that lie stride apart.
// A block has a tile of them in shared memory, as long as strides stay inside.
constexpr u32 Tile = 2048;

void order(u64& a, u64& b, bool up) {
	u64 x = a, y = b;
	if (x > y == up) a = y, b = x;
}

// sortTile takes sizes up to `to`, beginning with a stride of half of `from`, in a tile of n keys at position base of all.
void sortTile(u64* tile, u32 n, u32 base, u32 from, u32 to) {
	for (u32 size = from; size <= to; size *= 2)
		for (u32 stride = min(size, n) / 2; stride > 0; stride /= 2) {
			__syncthreads();
			for (u32 t = threadIdx.x; t < n / 2; t += blockDim.x) {
				u32 i = 2 * t - (t & (stride - 1)); // with the stride's bit 0
				order(tile[i], tile[i + stride], ((base + i) & size) == 0);
			}
		}
	__syncthreads();
}

// sort_keys makes keys of ids, padded to a power of two or a multiple of the tile, and sorts each tile, up and down in turns.
GLOBAL(1024) sort_keys(u64* keys, const void* at, u32 wide, u32 count, u32 tile, u64 rows, u64* record, u64 code) {
	__shared__ u64 room[Tile];
	Ids ids = {at, wide != 0};
	Fault fault = {record, code};
	u32 base = blockIdx.x * tile;
	for (u32 t = threadIdx.x; t < tile; t += blockDim.x) {
		u32 k = base + t, id = NoId;
		if (k < count && fault.index(ids, k, count, rows)) id = ids[k];
		room[t] = (u64)id << 32 | k;
	}
	sortTile(room, tile, base, 2, tile);
	for (u32 t = threadIdx.x; t < tile; t += blockDim.x) keys[base + t] = room[t];
}

// sort_step is one step over all keys, with a thread for each pair.
GLOBAL(256) sort_step(u64* keys, u32 pairs, u32 size, u32 stride) {
	u32 t = blockIdx.x * blockDim.x + threadIdx.x, i = 2 * t - (t & (stride - 1));
	if (t < pairs) order(keys[i], keys[i + stride], (i & size) == 0);
}

// sort_tile is the steps of a size whose strides stay inside of tiles.
GLOBAL(1024) sort_tile(u64* keys, u32 size) {
	__shared__ u64 room[Tile];
	u32 base = blockIdx.x * Tile;
	for (u32 t = threadIdx.x; t < Tile; t += blockDim.x) room[t] = keys[base + t];
	sortTile(room, Tile, base, size, size);
	for (u32 t = threadIdx.x; t < Tile; t += blockDim.x) keys[base + t] = room[t];
}

// Sums of the rows of g by their ids, in float64: a group goes through Run keys in order. What it has of an id that reaches beyond goes to part,
// which is (groups, 2, n): first what continues the run before, then what begins here and continues in the next.
constexpr u32 Run = 32;

struct Runs {
	const u64* keys;
	u32 count;
	u64 rows;

	u64 id(u32 k) const { return keys[k] >> 32; }
	bool first(u32 k) const { return k == 0 || id(k - 1) != id(k); }
	bool last(u32 k) const { return k + 1 == count || id(k + 1) != id(k); }
};

template <class T, int V> void scatterRun(T* o, const T* g, double* part, const Runs& r, u32 n, const Group& group) {
	u32 run = blockIdx.x * group.slots + group.slot, from = run * Run;
	if (from >= r.count) return;
	u32 to = min(from + Run, r.count);
	group.each<V, 1>(n, [&](u32 c) {
		Pack<double, V> s;
		bool whole = true; // the id began in this run
#pragma unroll 1
		for (u32 k = from; k < to && r.id(k) < r.rows; k++) {
			bool begins = r.first(k);
			whole = begins || whole && k > from;
			auto p = load<V>(g + (u64)(u32)r.keys[k] * n + c);
#pragma unroll
			for (int v = 0; v < V; v++) s[v] = (begins || k == from ? 0 : s[v]) + p[v];
			bool ends = r.last(k);
			if (!ends && k + 1 < to) continue;
			if (!whole || !ends) {
				give<V>(part + ((u64)run * 2 + whole) * n + c, s);
				continue;
			}
			Pack<Acc<T>, V> q;
#pragma unroll
			for (int v = 0; v < V; v++) q[v] = s[v];
			give<V>(o + r.id(k) * n + c, q);
		}
	});
}

template <class T> void scatter(T* o, const T* g, double* part, const Runs& r, u32 n, u32 lanes) {
	Group group(lanes);
	if (inPacks<T>(n)) {
		scatterRun<T, Wide<T>>(o, g, part, r, n, group);
	} else {
		scatterRun<T, 1>(o, g, part, r, n, group);
	}
}

// scatterParts adds up the parts of the ids that reach beyond the run in which they begin.
template <class T> void scatterParts(T* o, const double* part, const Runs& r, u32 n, u32 lanes) {
	Group g(lanes);
	u32 run = blockIdx.x * g.slots + g.slot, end = (run + 1) * Run - 1; // the run's last key
	if (end >= r.count || r.last(end)) return;
	u64 id = r.id(end);
	if (id >= r.rows || run > 0 && r.id(run * Run) == id && !r.first(run * Run)) return;
	g.each<1, 1>(n, [&](u32 c) {
		double s = part[((u64)run * 2 + 1) * n + c];
#pragma unroll 1
		for (u32 next = run + 1; next * Run < r.count && r.id(next * Run) == id; next++) s += part[(u64)next * 2 * n + c];
		o[id * n + c] = s;
	});
}

#define KERNELS(T, end) \
	GLOBAL(256) gather_##end(T* o, const T* table, const void* ids, u32 wide, u32 count, u32 n, u32 lanes, u64 rows, u64* record, u64 code) { \
		gather(o, table, Ids{ids, wide != 0}, count, n, lanes, rows, Fault{record, code}); \
	} \
	GLOBAL(256) scatter_##end(T* o, const T* g, double* part, const u64* keys, u32 count, u32 n, u32 lanes, u64 rows) { \
		scatter(o, g, part, Runs{keys, count, rows}, n, lanes); \
	} \
	GLOBAL(256) scatter_parts_##end(T* o, const double* part, const u64* keys, u32 count, u32 n, u32 lanes, u64 rows) { \
		scatterParts(o, part, Runs{keys, count, rows}, n, lanes); \
	}
BOTH(KERNELS)

// zero clears words of 4 bytes; copy moves words of 4 bytes, unless they are there already.
GLOBAL(256) zero(u32* at, u64 n) {
	u64 t = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x, quads = n / 4;
	for (u64 k = t; k < quads; k += step) ((uint4*)at)[k] = make_uint4(0, 0, 0, 0);
	for (u64 k = quads * 4 + t; k < n; k += step) at[k] = 0;
}

GLOBAL(256) copy(u32* to, const u32* from, u64 n) {
	if (to == from) return;
	u64 t = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x, quads = n / 4;
	for (u64 k = t; k < quads; k += step) ((uint4*)to)[k] = ((const uint4*)from)[k];
	for (u64 k = quads * 4 + t; k < n; k += step) to[k] = from[k];
}
