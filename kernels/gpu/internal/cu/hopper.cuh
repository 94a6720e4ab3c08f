// Instructions that compute capability 9.0 has and no other: products of matrices by four warps, which go on while these do something else, copies of tiles,
// and barriers that count bytes.

// Map describes an array to copies of tiles; the driver encodes it.
struct __align__(64) Map {
	u64 words[16];
};

// Barrier is a barrier in shared memory, named by its address. Its phases are told apart by their parity.
struct Barrier {
	u32 at;

	void make(u32 count) const { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory"); }
	void arrive() const { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
	// expect arrives, and has the phase last until so many bytes have been copied.
	void expect(u32 bytes) const { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory"); }
	void wait(u32 parity) const {
		asm volatile(
			"{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(at), "r"(parity)
			: "memory");
	}
};

// made has the barriers that a thread made be there for all, and for copies; a __syncthreads follows.
void made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

void prefetch(const Map& m) { asm volatile("prefetch.tensormap [%0];" ::"l"(&m) : "memory"); }

// copyTile copies a tile, from some columns and rows of a head on, to shared memory; a barrier counts its bytes.
void copyTile(u32 to, const Map& m, Barrier b, u32 col, u32 row, u32 head, u32 batch) {
	asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to), "l"(&m), "r"(b.at), "r"(col),
		"r"(head), "r"(row), "r"(batch)
		: "memory");
}

template <int N> void fewerRegisters() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> void moreRegisters() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

// Named barriers of a block, for some threads of it; 0 is that of __syncthreads.
void comeTo(u32 barrier, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }
void passOn(u32 barrier, u32 threads) { asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }
bool anyOf(u32 barrier, u32 threads, bool is) {
	u32 any;
	asm volatile("{\n.reg .pred p, q;\nsetp.ne.u32 p, %3, 0;\nbar.red.or.pred q, %1, %2, p;\nselp.u32 %0, 1, 0, q;\n}"
		: "=r"(any)
		: "r"(barrier), "r"(threads), "r"((u32)is)
		: "memory");
	return any != 0;
}

// matrix describes a factor in shared memory: rows of 128 bytes, whose pieces are swapped as copies of tiles do. What is further on is so many bytes away.
u64 matrix(u32 at, u32 leading) { return (u64)(at >> 4 & 0x3fff) | (u64)(leading >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62; }
u64 further(u64 matrix, u32 bytes) { return matrix + (bytes >> 4); }

// Products of four warps: what they read and write of registers is theirs from begin to finish, and what they read of shared memory is.
void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// finish waits for all that were committed, but for the last n.
template <int N> void finish() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

#define FOUR(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define SUMS32(d) FOUR(d, 0), FOUR(d, 1), FOUR(d, 2), FOUR(d, 3), FOUR(d, 4), FOUR(d, 5), FOUR(d, 6), FOUR(d, 7)
#define SUMS64(d) \
	SUMS32(d), FOUR(d, 8), FOUR(d, 9), FOUR(d, 10), FOUR(d, 11), FOUR(d, 12), FOUR(d, 13), FOUR(d, 14), FOUR(d, 15)
#define NAMES32 \
	"{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define NAMES64 \
	"{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
	"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
	"%62, %63}"

// keep has the compiler leave registers as they are until here, and read them from here on.
void keep(float (&d)[8][4]) { asm volatile("" : SUMS32(d)::"memory"); }
void keep(float (&d)[16][4]) { asm volatile("" : SUMS64(d)::"memory"); }
template <int K> void keep(u32 (&a)[K][4]) {
#pragma unroll
	for (int k = 0; k < K; k++) asm volatile("" : "+r"(a[k][0]), "+r"(a[k][1]), "+r"(a[k][2]), "+r"(a[k][3])::"memory");
}

// multiplyRows computes d = a·bᵀ, or adds that, of 16 elements of the rows of a and b.
#define MULTIPLY_ROWS(n, sums, a, b, adds) \
	void multiplyRows(float (&d)[n / 8][4], u64 x, u64 y, u32 more) { \
		asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #adds ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 " NAMES##sums ", %" #a ", %" #b \
					 ", p, 1, 1, 0, 0;\n}" \
			: SUMS##sums(d) \
			: "l"(x), "l"(y), "r"(more) \
			: "memory"); \
	}
MULTIPLY_ROWS(64, 32, 32, 33, 34)
MULTIPLY_ROWS(128, 64, 64, 65, 66)

// multiplyHeld adds a·b, of 16 columns of a, which registers hold, and rows of b.
#define MULTIPLY_HELD(n, sums, a0, a1, a2, a3, b) \
	void multiplyHeld(float (&d)[n / 8][4], const u32 (&a)[4], u64 y) { \
		asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 " NAMES##sums ", {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", 1, 1, 1, 1;" \
			: SUMS##sums(d) \
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(y) \
			: "memory"); \
	}
MULTIPLY_HELD(64, 32, 32, 33, 34, 35, 36)
MULTIPLY_HELD(128, 64, 64, 65, 66, 67, 68)
