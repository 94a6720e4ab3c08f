// Pooling over planes of h×w elements, in oh×ow steps. Planes are numbered by blockIdx.y; a thread makes one element of the result.

#include "common.cuh"

struct window {
    int h, w, oh, ow;
    int kh, kw, sh, sw, ph, pw, dh, dw; // kernel, stride, padding before, dilation
};

// largest finds the place of the largest element under the window at (oy, ox): of equal ones the first, of several NaN the last, −1 where there is
// nothing but padding.
template <typename T> int largest(const T *x, const window &v, int oy, int ox, T &best) {
    int at = -1;
#pragma unroll 1
    for (int ky = 0; ky < v.kh; ky++) {
        int y = oy * v.sh - v.ph + ky * v.dh;
        if (y < 0 || y >= v.h) continue;
#pragma unroll 1
        for (int kx = 0; kx < v.kw; kx++) {
            int col = ox * v.sw - v.pw + kx * v.dw;
            if (col < 0 || col >= v.w) continue;
            T e = x[y * v.w + col];
            if (at < 0 || e > best || e != e) best = e, at = y * v.w + col;
        }
    }
    return at;
}

// inside is how many elements of the image the window sees from a step along one axis.
int inside(int step, int size, int k, int s, int p, int d) {
    int n = 0;
#pragma unroll 1
    for (int t = 0; t < k; t++) {
        int at = step * s - p + t * d;
        n += at >= 0 && at < size;
    }
    return n;
}

// area is by what the sum under a window is divided.
template <typename T> T area(const window &v, int oy, int ox, int within) {
    if (!within) return T(v.kh) * T(v.kw);
    return T(max(1, inside(oy, v.h, v.kh, v.sh, v.ph, v.dh) * inside(ox, v.w, v.kw, v.sw, v.pw, v.dw)));
}

// step is from which step of the window its tap t falls on an element, −1 for none.
int step(int at, int t, int steps, int s, int p, int d) {
    int from = at + p - t * d;
    return from >= 0 && from % s == 0 && from / s < steps ? from / s : -1;
}

// whole makes the gradient of the element at (y, col): what fn gives for each window that sees it, added up.
template <typename T, typename F> T whole(const window &v, int y, int col, F fn) {
    T sum = 0;
#pragma unroll 1
    for (int ky = 0; ky < v.kh; ky++) {
        int oy = step(y, ky, v.oh, v.sh, v.ph, v.dh);
        if (oy < 0) continue;
#pragma unroll 1
        for (int kx = 0; kx < v.kw; kx++) {
            int ox = step(col, kx, v.ow, v.sw, v.pw, v.dw);
            if (ox >= 0) sum += fn(oy, ox);
        }
    }
    return sum;
}

template <typename T> T maxpool(const T *x, const T *, const window &v, int e, int) {
    T best = -__int_as_float(0x7f800000);
    largest(x, v, e / v.ow, e % v.ow, best);
    return best;
}

template <typename T> T maxpool_grad(const T *x, const T *gy, const window &v, int e, int) {
    return whole<T>(v, e / v.w, e % v.w, [&](int oy, int ox) {
        T best = 0;
        return largest(x, v, oy, ox, best) == e ? gy[oy * v.ow + ox] : T(0);
    });
}

template <typename T> T avgpool(const T *x, const T *, const window &v, int e, int within) {
    int oy = e / v.ow, ox = e % v.ow;
    T sum = 0;
#pragma unroll 1
    for (int ky = 0; ky < v.kh; ky++) {
        int y = oy * v.sh - v.ph + ky * v.dh;
        if (y < 0 || y >= v.h) continue;
#pragma unroll 1
        for (int kx = 0; kx < v.kw; kx++) {
            int col = ox * v.sw - v.pw + kx * v.dw;
            if (col >= 0 && col < v.w) sum += x[y * v.w + col];
        }
    }
    return sum / area<T>(v, oy, ox, within);
}

template <typename T> T avgpool_grad(const T *gy, const T *, const window &v, int e, int within) {
    return whole<T>(v, e / v.w, e % v.w, [&](int oy, int ox) { return gy[oy * v.ow + ox] / area<T>(v, oy, ox, within); });
}

// A kernel makes planes of `made` elements, of planes of `a` and `b` elements.
#define POOL(name, T, of, made, first, second)                                                                                             \
    extern "C" __global__ void name(T *o, const T *a, const T *b, int planes, int within, int h, int w, int oh, int ow, int kh, int kw,    \
                                    int sh, int sw, int ph, int pw, int dh, int dw) {                                                      \
        window v = {h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw};                                                                         \
        for (int plane = blockIdx.y; plane < planes; plane += gridDim.y)                                                                   \
            for (int e = blockIdx.x * blockDim.x + threadIdx.x; e < made; e += gridDim.x * blockDim.x)                                     \
                o[i64(plane) * (made) + e] = of<T>(a + i64(plane) * (first), b + i64(plane) * (second), v, e, within);                     \
    }

#define POOLS(suffix, T)                                                                                                                   \
    POOL(maxpool_##suffix, T, maxpool, oh *ow, h *w, 0)                                                                                    \
    POOL(maxpool_grad_##suffix, T, maxpool_grad, h *w, h *w, oh *ow)                                                                       \
    POOL(avgpool_##suffix, T, avgpool, oh *ow, h *w, 0)                                                                                    \
    POOL(avgpool_grad_##suffix, T, avgpool_grad, h *w, oh *ow, 0)

POOLS(f32, float)
POOLS(f64, double)
