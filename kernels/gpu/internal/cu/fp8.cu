// Factors of products as e4m3, a byte for each element: 4 bits of exponent, 3 of mantissa, no infinity. They lie by rows whose elements are a sum's
// terms. Each 128 terms of a row have a scale, a power of two by which the largest of them comes to more than 224, and at most 448, the largest e4m3:
// element = e4m3·scale. So no element is cut off, and how one is rounded does not depend on its neighbours, where they are less than 2^13 times as
// large. Scales of all rows for the same terms lie together. A block of zeros has scale 1. What is NaN or infinite is NaN, and counts for no scale.
#include "common.cuh"

typedef unsigned char u8;

constexpr u32 Terms = 128; // that share a scale

// size orders floats by their size: 0 for what is not finite.
u32 size(float v) {
	u32 s = __float_as_uint(v) & 0x7fffffff;
	return s < 0x7f800000 ? s : 0;
}

// exponent is that of the scale, as a float has it, for the greatest size. The reciprocal is a float too.
u32 exponent(u32 most) { return most == 0 ? 127 : max((int)((most + 0x1fffff) >> 23) - 8, 1); }
float scale(u32 exponent) { return __uint_as_float(exponent << 23); }
float reciprocal(u32 exponent) { return __uint_as_float((254 - exponent) << 23); }

// e4m3 rounds to the nearest, to even where two are as near. It is called for no finite number beyond 448.
u32 e4m3(float v) {
	u32 u = __float_as_uint(v), s = u & 0x7fffffff;
	u32 code = ((s + 0x7ffff + (s >> 20 & 1)) >> 20) - (120 << 3);
	if (s < 0x3c800000) code = __float_as_uint(__uint_as_float(s) + 16384.f) & 15; // below 2^-6 steps are of 2^-9, as floats' are from 16384 on
	if (s >= 0x7f800000) code = 0x7f;
	return code | u >> 24 & 0x80;
}

// along is for rows that are contiguous: half a warp has a block, and each thread 8 of its elements.
template <class T> void along(u8* to, const T* from, float* scales, u64 ld, u32 rows, u32 terms) {
	const u32 lane = threadIdx.x % 16, row = blockIdx.x * 16 + threadIdx.x / 16;
#pragma unroll 1
	for (u32 block = blockIdx.y; block * Terms < terms; block += gridDim.y) {
		u32 k = block * Terms + lane * 8, most = 0;
		bool mine = row < rows && k < terms;
		Pack<float, 8> v = {};
		if (mine) v = load<8>(from + row * ld + k);
#pragma unroll
		for (int j = 0; j < 8; j++) most = max(most, size(v[j]));
#pragma unroll
		for (u32 o = 8; o > 0; o /= 2) most = max(most, shuffle(most, o));
		u32 e = exponent(most), words[2] = {};
		float by = reciprocal(e);
#pragma unroll
		for (int j = 0; j < 8; j++) words[j / 4] |= e4m3(v[j] * by) << j % 4 * 8;
		if (mine) *(uint2*)(to + (u64)row * terms + k) = make_uint2(words[0], words[1]);
		if (row < rows && lane == 0) scales[(u64)block * rows + row] = scale(e);
	}
}

// across is for rows whose elements lie ld apart, and whose first elements are contiguous. A block of 256 threads has those of 64 rows: a thread 8 rows
// of 4 terms, which become a word for each row in the tile.
template <class T> void across(u8* to, const T* from, float* scales, u64 ld, u32 rows, u32 terms) {
	constexpr u32 Rows = 64, Pitch = Terms / 4 + 1;
	__shared__ u32 most[8][Rows], tile[Rows * Pitch];
	const u32 at = threadIdx.x % 8 * 8, part = threadIdx.x / 8, first = blockIdx.x * Rows;
#pragma unroll 1
	for (u32 block = blockIdx.y; block * Terms < terms; block += gridDim.y) {
		u32 k = block * Terms + part * 4, m[8] = {};
		Pack<float, 8> v[4] = {};
		if (first + at < rows && k < terms) {
#pragma unroll
			for (int p = 0; p < 4; p++) v[p] = load<8>(from + (k + p) * ld + first + at);
		}
#pragma unroll
		for (int j = 0; j < 8; j++) {
#pragma unroll
			for (int p = 0; p < 4; p++) m[j] = max(m[j], size(v[p][j]));
			m[j] = max(m[j], shuffle(m[j], 8));
			m[j] = max(m[j], shuffle(m[j], 16));
			if (threadIdx.x % 32 < 8) most[threadIdx.x / 32][at + j] = m[j];
		}
		__syncthreads();
		if (threadIdx.x < Rows) {
			u32 all = 0, row = first + threadIdx.x;
#pragma unroll
			for (int w = 0; w < 8; w++) all = max(all, most[w][threadIdx.x]);
			most[0][threadIdx.x] = exponent(all);
			if (row < rows) scales[(u64)block * rows + row] = scale(exponent(all));
		}
		__syncthreads();
#pragma unroll
		for (int j = 0; j < 8; j++) {
			float by = reciprocal(most[0][at + j]);
			u32 word = 0;
#pragma unroll
			for (int p = 0; p < 4; p++) word |= e4m3(v[p][j] * by) << p * 8;
			tile[(at + j) * Pitch + part] = word;
		}
		__syncthreads(); // nobody writes most before all have read it
#pragma unroll
		for (u32 n = threadIdx.x; n < Rows * 8; n += 256) {
			u32 row = n / 8, word = row * Pitch + n % 8 * 4, term = block * Terms + n % 8 * 16;
			if (first + row < rows && term < terms)
				*(uint4*)(to + (u64)(first + row) * terms + term) = make_uint4(tile[word], tile[word + 1], tile[word + 2], tile[word + 3]);
		}
	}
}

#define QUANTIZE(how, T, name) \
	GLOBAL(256) how##_##name(u8* to, const T* from, float* scales, u64 ld, u32 rows, u32 terms) { how(to, from, scales, ld, rows, terms); }
QUANTIZE(along, float, f)
QUANTIZE(along, Bf16, b)
QUANTIZE(across, float, f)
QUANTIZE(across, Bf16, b)
