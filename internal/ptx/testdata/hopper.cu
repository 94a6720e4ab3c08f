// What compute capability 9.0 has and no other: products by four warps, copies of tiles, barriers that count bytes.
// nvrtc: --gpu-architecture=compute_90a
typedef unsigned u32;
typedef unsigned short u16;
typedef unsigned long long u64;
#define KERNEL(name) extern "C" __global__ void name

struct __align__(64) Map { u64 words[16]; };

__device__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

__device__ void make(u32 bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory"); }
__device__ void arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
__device__ void expect(u32 bar, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory"); }
__device__ void wait(u32 bar, u32 parity) {
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ void copy(u32 to, const Map *m, u32 bar, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to), "l"(m), "r"(bar),
               "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
__device__ u64 descriptor(u32 at, u32 leading, u32 stride, u32 swizzle) {
  return (u64)(at >> 4 & 0x3fff) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | (u64)swizzle << 62;
}
__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory")

#define SUMS "{%0, %1, %2, %3, %4, %5, %6, %7}"
#define OF(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
// mul is a product of 64 by 16 by 16, of factors in shared memory.
template <int TurnA, int TurnB> __device__ void mul(float (&d)[8], u64 a, u64 b, int adds) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 " SUMS ", %8, %9, p, 1, 1, %11, %12;\n}"
               : OF(d) : "l"(a), "l"(b), "r"(adds), "n"(TurnA), "n"(TurnB) : "memory");
}
template <int TurnB> __device__ void mul_held(float (&d)[8], const u32 (&a)[4], u64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 " SUMS ", {%8, %9, %10, %11}, %12, 1, -1, 1, %13;"
               : OF(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TurnB) : "memory");
}
__device__ void hold(float (&d)[8]) { asm volatile("" : OF(d)::"memory"); }
__device__ void give(float *c, const float (&d)[8]) {
  u32 l = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + l / 4;
  for (int n = 0; n < 2; n++)
    for (int e = 0; e < 4; e++) c[(row + e / 2 * 8) * 16 + n * 8 + l % 4 * 2 + e % 2] = d[n * 4 + e];
}

// place is where an element of a factor lies, by how the manual draws it: of a matrix of rows by 16 that are summed over, with pieces of `wide` bytes.
__device__ u32 place(u32 row, u32 k, u32 wide, bool turned, u32 leading, u32 stride) {
  u32 each = wide / 2, at;
  if (turned && wide == 16) at = row / 8 * stride + row % 8 * 2 + k % 8 * 16 + k / 8 * leading;
  else if (turned) at = row / each * leading + row % each * 2 + k % 8 * wide + k / 8 * stride;
  else if (wide == 16) at = row / 8 * stride + row % 8 * 16 + k / 8 * leading + k % 8 * 2;
  else at = row / 8 * stride + row % 8 * wide + k * 2;
  if (wide == 128) return at ^ (at / 128 % 8) * 16;
  if (wide == 64) return at ^ (at / 128 % 4) * 16;
  if (wide == 32) return at ^ (at / 128 % 2) * 16;
  return at;
}

// c (64x16) = a (64x16) bᵀ (16x16), and then the same from registers taken away, and added once more: so c is that again.
template <int Wide, int TurnA, int TurnB> __device__ void product(const u16 *a, const u16 *b, float *c) {
  __shared__ __align__(1024) u16 sa[16384], sb[8192];
  constexpr u32 Swizzle = Wide == 128 ? 1 : Wide == 64 ? 2 : Wide == 32 ? 3 : 0, Leading = 8192, Stride = 1024;
  for (u32 k = threadIdx.x; k < 64 * 16; k += 128) sa[place(k / 16, k % 16, Wide, TurnA, Leading, Stride) / 2] = a[k];
  for (u32 k = threadIdx.x; k < 16 * 16; k += 128) sb[place(k / 16, k % 16, Wide, TurnB, Leading, Stride) / 2] = b[k];
  proxy();
  __syncthreads();
  u32 held[4], l = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + l / 4;
  for (int e = 0; e < 4; e++) held[e] = *(const u32 *)(a + (row + e % 2 * 8) * 16 + l % 4 * 2 + e / 2 * 8);
  float d[8];
  for (int e = 0; e < 8; e++) d[e] = 1e30f; // what is not added to does not count
  u64 da = descriptor(shared_address(sa), Leading, Stride, Swizzle), db = descriptor(shared_address(sb), Leading, Stride, Swizzle);
  fence();
  mul<TurnA, TurnB>(d, da, db, 0);
  mul_held<TurnB>(d, held, db);
  mul<TurnA, TurnB>(d, da, db, 1);
  commit();
  WAIT(0);
  hold(d);
  give(c, d);
}
#define PRODUCT(wide, a, b) KERNEL(product_##wide##_##a##b)(const u16 *x, const u16 *y, float *c) { product<wide, a, b>(x, y, c); }
#define PRODUCTS(wide) PRODUCT(wide, 0, 0) PRODUCT(wide, 0, 1) PRODUCT(wide, 1, 0) PRODUCT(wide, 1, 1)
PRODUCTS(16) PRODUCTS(32) PRODUCTS(64) PRODUCTS(128)

// A product that goes wrong in some way.
enum { Right, NoFence, NoProxy, NoWait, Unwritten };
template <int Wrong> __device__ void wrong(float *c) {
  __shared__ __align__(1024) u16 s[4096];
  if (Wrong != Unwritten) for (u32 k = threadIdx.x; k < 4096; k += 128) s[k] = 0x3f80;
  if (Wrong != NoProxy) proxy();
  __syncthreads();
  float d[8] = {};
  u64 at = descriptor(shared_address(s), 0, 1024, 1);
  if (Wrong != NoFence) fence();
  mul<0, 0>(d, at, at, 0);
  commit();
  if (Wrong == NoWait) give(c, d);
  WAIT(0);
  if (Wrong != NoWait) hold(d), give(c, d);
}
KERNEL(right)(float *c) { wrong<Right>(c); }
KERNEL(no_fence)(float *c) { wrong<NoFence>(c); }
KERNEL(no_proxy)(float *c) { wrong<NoProxy>(c); }
KERNEL(no_wait)(float *c) { wrong<NoWait>(c); }
KERNEL(unwritten)(float *c) { wrong<Unwritten>(c); }

// Tiles of 16 rows of 64 go through a ring of two, from a warp that copies to one that reads: columns, rows and heads from some on.
enum { NoFull = 1, NoEmpty, TooMany, FewBytes, ManyBytes, Leaves };
template <int Wrong> __device__ void ring(const Map *m, u16 *to, int x, int y, int z, int w) {
  __shared__ __align__(1024) u16 tile[2][16 * 64];
  __shared__ u64 full[2], empty[2];
  constexpr u32 Bytes = 16 * 64 * 2, Tiles = 5;
  u32 lane = threadIdx.x % 32;
  if (threadIdx.x == 0)
    for (int k = 0; k < 2; k++) make(shared_address(full + k), 1), make(shared_address(empty + k), 32);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  if (threadIdx.x < 32) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    u32 chosen, leader;
    asm volatile("{\n.reg .pred p;\nelect.sync %0|p, 0xffffffff;\nselp.u32 %1, 1, 0, p;\n}" : "=r"(leader), "=r"(chosen));
    for (u32 k = 0; k < Tiles && chosen && leader == 0; k++) {
      u32 bar = shared_address(full + k % 2);
      if (Wrong != NoEmpty) wait(shared_address(empty + k % 2), k / 2 % 2 ^ 1);
      expect(bar, Wrong == FewBytes ? Bytes - 2 : Wrong == ManyBytes ? Bytes + 2 : Bytes);
      if (Wrong == TooMany) arrive(bar);
      copy(shared_address(tile[k % 2]), m, bar, x, y + 16 * (int)k, z, w);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    for (u32 k = 0; k < (Wrong == Leaves ? Tiles - 1 : Tiles); k++) {
      if (Wrong != NoFull) wait(shared_address(full + k % 2), k / 2 % 2);
      for (u32 e = lane; e < 16 * 64; e += 32) to[k * 16 * 64 + e] = tile[k % 2][(e / 8 ^ e / 64 % 8) * 8 + e % 8];
      arrive(shared_address(empty + k % 2));
    }
  }
}
#define RING(name, how) KERNEL(name)(const __grid_constant__ Map m, u16 *to, int x, int y, int z, int w) { ring<how>(&m, to, x, y, z, w); }
RING(ring, 0) RING(ring_no_full, NoFull) RING(ring_no_empty, NoEmpty) RING(ring_too_many, TooMany) RING(ring_few_bytes, FewBytes) RING(ring_many_bytes, ManyBytes)
RING(ring_leaves, Leaves)
