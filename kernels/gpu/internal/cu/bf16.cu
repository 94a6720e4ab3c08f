// Products of matrices of bfloat16 by tensor cores, with sums of float32 and results of float32 or bfloat16, and what makes such matrices of float32.
// nvrtc: --gpu-architecture=compute_80

#include "common.cuh"

typedef unsigned short u16; // a bfloat16

// pair rounds two numbers to the nearest, to even where two are as near; first is the lower half.
u32 pair(float first, float second) {
    u32 v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(second), "f"(first));
    return v;
}

// o = x, n elements. Threads have 8 each at a time.
GLOBAL(256) narrow(u16 *o, const float *x, u64 n) {
    for (u64 at = (u64(blockIdx.x) * 256 + threadIdx.x) * 8; at < n; at += u64(gridDim.x) * 256 * 8) {
        if (at + 8 <= n) {
            float4 p = *(const float4 *)(x + at), q = *(const float4 *)(x + at + 4);
            *(uint4 *)(o + at) = make_uint4(pair(p.x, p.y), pair(p.z, p.w), pair(q.x, q.y), pair(q.z, q.w));
        } else {
#pragma unroll 1
            for (; at < n; at++) o[at] = u16(pair(x[at], 0));
        }
    }
}

// A block of 8 warps makes a tile of 128×128, each warp 64×32 of it: 4×4 products of 16×8 by 16 terms. Factors come DEPTH terms at a time, by
// asynchronous copies, while those before are multiplied.
const int TILE = 128, DEPTH = 32, THREADS = 256;

u32 place(const u16 *p) { return u32(__cvta_generic_to_shared(p)); }

// Factor is op(a), or op(b) by its columns: rows whose elements are a sum's terms. ALONG: the terms are contiguous; otherwise the rows are.
template <bool ALONG> struct Factor {
    // 8 rows of 8 elements, which ldmatrix reads at once, lie in different banks.
    static const int PITCH = (ALONG ? DEPTH : TILE) + 8, SIZE = PITCH * (ALONG ? TILE : DEPTH);

    const u16 *at;
    i64 ld;
    int rows;
    bool wide; // all 8 elements that are fetched together lie at a multiple of 16 bytes

    // fetch begins to load a tile: rows from row on, terms [k, ks) from k on, with zeros beyond.
    void fetch(u16 *tile, int row, int k, int ks) const {
        const int ACROSS = (ALONG ? DEPTH : TILE) / 8; // eights of a stored row
#pragma unroll
        for (int e = 0; e < TILE * DEPTH / 8 / THREADS; e++) {
            int id = threadIdx.x + e * THREADS, y = id / ACROSS, x = id % ACROSS * 8;
            u16 *to = tile + y * PITCH + x;
            int i = (ALONG ? row : k) + y, j = (ALONG ? k : row) + x;
            int have = max(0, min(8, (ALONG ? ks : rows) - j));
            if (i >= (ALONG ? rows : ks)) have = 0;
            const u16 *from = at + (have ? i * ld + j : 0);
            if (wide) {
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place(to)), "l"(from), "r"(have * 2) : "memory");
            } else {
#pragma unroll 4
                for (int e = 0; e < 8; e++) to[e] = e < have ? from[e] : 0;
            }
        }
    }

    // four reads four matrices of 8×8: of terms from k on and from 8 further on, and of rows from row on and from 8 further on. Terms come
    // first where they do in what multiplies.
    template <bool TERMS> static void four(u32 (&v)[4], const u16 *tile, int row, int k) {
        int l = threadIdx.x % 32, in = l % 8, second = l / 8 % 2 * 8, third = l / 16 * 8;
        // a matrix's stored rows are rows of the factor, or with the terms across, terms
        int y = ALONG ? row + in + (TERMS ? third : second) : k + in + (TERMS ? second : third);
        int x = ALONG ? k + (TERMS ? second : third) : row + (TERMS ? third : second);
        u32 from = place(tile + y * PITCH + x);
        if constexpr (ALONG)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from) : "memory");
        else
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from) : "memory");
    }
};

// add is c += a·b, of 16×16 and 16×8.
void add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

void write(float *at, float v) { *at = v; }
void write(u16 *at, float v) { *at = u16(pair(v, 0)); }
void write(float *at, float first, float second) { *(float2 *)at = make_float2(first, second); }
void write(u16 *at, float first, float second) { *(u32 *)at = pair(first, second); }

// put writes two neighbours of a row.
template <class T> void put(T *row, int x, int n, float first, float second) {
    if (n % 2 == 0) {
        if (x < n) write(row + x, first, second);
        return;
    }
    if (x < n) write(row + x, first);
    if (x + 1 < n) write(row + x + 1, second);
}

// product computes a block's tile of c, whose rows have n elements, of the terms [k, ks).
template <class T, bool A, bool B> void product(T *c, const Factor<A> &a, const Factor<B> &b, int k, int ks) {
    __shared__ __align__(16) u16 as[2][Factor<A>::SIZE], bs[2][Factor<B>::SIZE];
    const int m = a.rows, n = b.rows, across = (n + TILE - 1) / TILE;
    const int row = blockIdx.x / across * TILE, column = blockIdx.x % across * TILE;
    const int warp = threadIdx.x / 32, top = warp % 2 * 64, left = warp / 2 * 32;
    const bool outside = row + top >= m || column + left >= n; // all of a warp's
    float sum[4][4][4] = {};
    a.fetch(as[0], row, k, ks);
    b.fetch(bs[0], column, k, ks);
    asm volatile("cp.async.commit_group;" ::: "memory");
#pragma unroll 1
    for (int now = 0; k < ks; k += DEPTH, now ^= 1) {
        if (k + DEPTH < ks) {
            a.fetch(as[now ^ 1], row, k + DEPTH, ks);
            b.fetch(bs[now ^ 1], column, k + DEPTH, ks);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < DEPTH && !outside; kk += 16) {
            u32 y[2][4];
#pragma unroll
            for (int j = 0; j < 2; j++) b.template four<true>(y[j], bs[now], left + j * 16, kk);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 x[4];
                a.template four<false>(x, as[now], top + i * 16, kk);
#pragma unroll
                for (int j = 0; j < 4; j++) add(sum[i][j], x, y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
            }
        }
        __syncthreads(); // what was read is overwritten next
    }
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int y = row + top + i * 16 + lane / 4;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int x = column + left + j * 8 + lane % 4 * 2;
            if (y < m) put(c + i64(y) * n, x, n, sum[i][j][0], sum[i][j][1]);
            if (y + 8 < m) put(c + i64(y + 8) * n, x, n, sum[i][j][2], sum[i][j][3]);
        }
    }
}

// The z-th of a launch's results has inner of the terms of one product, and follows the one before; products are numbered along three axes, of
// which the last two have d1 and d2 indices.
#define PRODUCT(name, T, A, B)                                                                                                               \
    GLOBAL(THREADS, 2)                                                                                                                       \
    name(T *c, const u16 *a, const u16 *b, int m, int n, int k, int inner, int splits, int count, int d1, int d2, int wideA, int wideB,      \
         i64 ldA, i64 ldB, i64 a0, i64 a1, i64 a2, i64 b0, i64 b1, i64 b2) {                                                                 \
        _Pragma("unroll 1") for (int z = blockIdx.z; z < count; z += gridDim.z) {                                                            \
            int at = z / splits, from = z % splits * inner, i2 = at % d2, i1 = at / d2 % d1, i0 = at / d2 / d1;                              \
            Factor<A> fa = {a + i0 * a0 + i1 * a1 + i2 * a2, ldA, m, wideA != 0};                                                            \
            Factor<B> fb = {b + i0 * b0 + i1 * b1 + i2 * b2, ldB, n, wideB != 0};                                                            \
            product(c + i64(z) * m * n, fa, fb, from, min(k, from + inner));                                                                 \
        }                                                                                                                                    \
    }

PRODUCT(product_rr, float, true, false) // r: stored by rows, t: turned
PRODUCT(product_rt, float, true, true)
PRODUCT(product_tr, float, false, false)
PRODUCT(product_tt, float, false, true)
PRODUCT(product_rr_thin, u16, true, false) // with results of bfloat16
PRODUCT(product_rt_thin, u16, true, true)
PRODUCT(product_tr_thin, u16, false, false)
PRODUCT(product_tt_thin, u16, false, true)
