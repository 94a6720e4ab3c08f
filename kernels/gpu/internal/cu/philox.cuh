// Random numbers by Philox4x32-10, as package kernels describes them.

struct Key {
	u64 seed, counter;
};

// words are four random numbers: block n under a key.
uint4 words(const Key& key, u64 n) {
	u32 a = n, b = n >> 32, c = key.counter, d = key.counter >> 32, x = key.seed, y = key.seed >> 32;
#pragma unroll
	for (int round = 0; round < 10; round++) {
		u64 u = 0xD2511F53 * (u64)a, v = 0xCD9E8D57 * (u64)c;
		a = (u32)(v >> 32) ^ b ^ x, b = v, c = (u32)(u >> 32) ^ d ^ y, d = u;
		x += 0x9E3779B9, y += 0xBB67AE85;
	}
	return make_uint4(a, b, c, d);
}
