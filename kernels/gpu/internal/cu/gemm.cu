// Products of matrices: c = op(a)·op(b), for any distances between elements. One block computes a tile of BM×BN, each thread TM×TN of it; the
// factors go through shared memory, BK of the sum's terms at a time, and are fetched into registers while the block before is multiplied.

#include "common.cuh"

// factor is a matrix of a batch: element (i, k) of matrix z lies i·row + k·col from where z's begins. The sum's terms may come in pieces
// that lie piece elements from each other.
template <typename T> struct factor {
    const T *at;
    i64 row, col;
};

// extents say what a block has to do.
struct extents {
    int m, n, k; // k is all terms
    int inner;   // terms of a piece; the last may be shorter
    int per;     // pieces that one split adds up
};

// fetch loads a thread's part of a tile: ROWS by BK, zeros beyond what there is. Neighbouring threads go where memory is contiguous.
template <typename T, int ROWS, int BK, int THREADS>
void fetch(T (&r)[ROWS * BK / THREADS], const factor<T> &f, int row, int rows, int k, int ks) {
#pragma unroll
    for (int e = 0; e < ROWS * BK / THREADS; e++) {
        int id = threadIdx.x + e * THREADS;
        int i = row + (f.col == 1 ? id / BK : id % ROWS), kk = k + (f.col == 1 ? id % BK : id / ROWS);
        r[e] = i < rows && kk < ks ? f.at[i * f.row + kk * f.col] : T(0);
    }
}

template <typename T, int ROWS, int BK, int THREADS>
void lay(T (*tile)[ROWS + 4], const T (&r)[ROWS * BK / THREADS], bool along) {
#pragma unroll
    for (int e = 0; e < ROWS * BK / THREADS; e++) {
        int id = threadIdx.x + e * THREADS;
        if (along)
            tile[id % BK][id / BK] = r[e];
        else
            tile[id / ROWS][id % ROWS] = r[e];
    }
}

// RUN is how many terms are added up before the sum is added to that of the terms before.
const int RUN = 256;

template <typename T, int BM, int BN, int BK, int TM, int TN>
void gemm(T *c, int ldc, factor<T> a, factor<T> b, i64 pieceA, i64 pieceB, extents s, int split) {
    const int TX = BN / TN, TY = BM / TM, THREADS = TX * TY;
    __shared__ T as[BK][BM + 4], bs[BK][BN + 4];
    const int across = (s.n + BN - 1) / BN;
    const int row = blockIdx.x / across * BM, column = blockIdx.x % across * BN;
    const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
    T total[TM][TN] = {}, sum[TM][TN] = {};
    int piece = split * s.per;
    int end = min(piece + s.per, (s.k + s.inner - 1) / s.inner);
    a.at += piece * pieceA;
    b.at += piece * pieceB;
    for (; piece < end; piece++, a.at += pieceA, b.at += pieceB) {
        const int ks = min(s.inner, s.k - piece * s.inner);
        T ra[BM * BK / THREADS], rb[BN * BK / THREADS];
        fetch<T, BM, BK, THREADS>(ra, a, row, s.m, 0, ks);
        fetch<T, BN, BK, THREADS>(rb, b, column, s.n, 0, ks);
        for (int k = 0; k < ks; k += BK) {
            __syncthreads();
            lay<T, BM, BK, THREADS>(as, ra, a.col == 1);
            lay<T, BN, BK, THREADS>(bs, rb, b.col == 1);
            __syncthreads();
            if (k + BK < ks) {
                fetch<T, BM, BK, THREADS>(ra, a, row, s.m, k + BK, ks);
                fetch<T, BN, BK, THREADS>(rb, b, column, s.n, k + BK, ks);
            }
#pragma unroll
            for (int kk = 0; kk < BK; kk++) {
                T x[TM], y[TN];
#pragma unroll
                for (int i = 0; i < TM; i++) x[i] = as[kk][ty + i * TY];
#pragma unroll
                for (int j = 0; j < TN; j++) y[j] = bs[kk][tx + j * TX];
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++) sum[i][j] += x[i] * y[j];
            }
            if ((k + BK) % RUN == 0 || k + BK >= ks) { // sums of sums are more accurate
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++) total[i][j] += sum[i][j], sum[i][j] = 0;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            int y = row + ty + i * TY, x = column + tx + j * TX;
            if (y < s.m && x < s.n) c[i64(y) * ldc + x] = total[i][j];
        }
}

// The z-th of a launch's results is one split of one product; products are numbered along three axes, of which the last two have d1 and d2
// indices.
#define GEMM(name, T, BM, BN, BK, TM, TN)                                                                                                     \
    extern "C" __global__ void __launch_bounds__((BM / TM) * (BN / TN))                                                                       \
        name(T *c, const T *a, const T *b, int m, int n, int k, int inner, int per, int splits, int count, int d1, int d2, int ldc, i64 stepC, \
             i64 rowA, i64 colA, i64 pieceA, i64 a0, i64 a1, i64 a2, i64 rowB, i64 colB, i64 pieceB, i64 b0, i64 b1, i64 b2) {                 \
        for (int z = blockIdx.z; z < count; z += gridDim.z) {                                                                                 \
            int at = z / splits, i2 = at % d2, i1 = at / d2 % d1, i0 = at / d2 / d1;                                                          \
            factor<T> fa = {a + i0 * a0 + i1 * a1 + i2 * a2, rowA, colA}, fb = {b + i0 * b0 + i1 * b1 + i2 * b2, colB, rowB};                 \
            extents s = {m, n, k, inner, per};                                                                                                \
            gemm<T, BM, BN, BK, TM, TN>(c + z * stepC, ldc, fa, fb, pieceA, pieceB, s, z % splits);                                           \
            __syncthreads();                                                                                                                  \
        }                                                                                                                                     \
    }

GEMM(gemm_large_f32, float, 128, 128, 8, 8, 8)
GEMM(gemm_small_f32, float, 32, 32, 16, 4, 4)
GEMM(gemm_large_f64, double, 64, 64, 8, 4, 4)
GEMM(gemm_small_f64, double, 32, 32, 8, 4, 4)
