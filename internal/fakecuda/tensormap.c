//go:build ignore

// Maps of tensors, with the bytes that the interpreter of PTX reads (internal/ptx/simt).
#include "driver.h"

int cuTensorMapEncodeTiled(uint64_t *map, unsigned type, unsigned rank, uint64_t at, const uint64_t *extents, const uint64_t *strides, const uint32_t *box,
	const uint32_t *steps, unsigned interleave, unsigned swizzle, unsigned l2, unsigned fill) {
	ENTER;
	if (set.unmapped) return NOT_FOUND;
	if (set.arch < 90) return NOT_SUPPORTED;
	int bad = (uintptr_t)map % 64 || type != 9 || rank != 4 || interleave || swizzle != 3 || l2 > 3 || fill || !at || at % 16;
	uint64_t raw[16] = {0x3170616d74666577, at};
	for (unsigned k = 0; k < 4; k++) {
		bad |= !extents[k] || extents[k] > 1ull << 32 || !box[k] || box[k] > 256 || steps[k] != 1;
		raw[2 + k] = extents[k], raw[9 + k] = box[k];
	}
	for (unsigned k = 0; k < 3; k++) {
		bad |= strides[k] % 16 || strides[k] >= 1ull << 40;
		raw[6 + k] = strides[k];
	}
	if (bad || box[0] * 2 % 16 || box[0] * 2 > 128) return INVALID;
	return memcpy(map, raw, sizeof raw), OK;
}
