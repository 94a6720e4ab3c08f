// What a convolution's kernel sees, laid out in columns, and back. The images of a batch are numbered by blockIdx.y.

#include "common.cuh"

// window slides over images of c channels of h×w, in oh×ow steps.
struct window {
    int c, h, w, oh, ow;
    int kh, kw, sh, sw, ph, pw, dh, dw; // kernel, stride, padding before, dilation
};

template <typename T>
T seen(const T *x, const window &v, int channel, int oy, int ox, int ky, int kx) {
    int y = oy * v.sh - v.ph + ky * v.dh, col = ox * v.sw - v.pw + kx * v.dw;
    return y >= 0 && y < v.h && col >= 0 && col < v.w ? x[(channel * v.h + y) * v.w + col] : T(0);
}

// (c, h, w) → (c·kh·kw, oh·ow), or with rows (oh·ow, c·kh·kw).
template <typename T> void im2col(T *o, const T *x, int images, int rows, window v) {
    const int taps = v.c * v.kh * v.kw, steps = v.oh * v.ow, n = taps * steps;
    for (int image = blockIdx.y; image < images; image += gridDim.y)
        for (int e = blockIdx.x * blockDim.x + threadIdx.x; e < n; e += gridDim.x * blockDim.x) {
            int tap = rows ? e % taps : e / steps, step = rows ? e / taps : e % steps;
            o[i64(image) * n + e] = seen(x + i64(image) * v.c * v.h * v.w, v, tap / (v.kh * v.kw), step / v.ow, step % v.ow,
                                         tap / v.kw % v.kh, tap % v.kw);
        }
}

// The sum of all that im2col takes from an element.
template <typename T> void col2im(T *o, const T *x, int images, int rows, window v) {
    const int taps = v.c * v.kh * v.kw, steps = v.oh * v.ow, n = v.c * v.h * v.w;
    for (int image = blockIdx.y; image < images; image += gridDim.y)
        for (int e = blockIdx.x * blockDim.x + threadIdx.x; e < n; e += gridDim.x * blockDim.x) {
            const T *from = x + i64(image) * taps * steps;
            int col = e % v.w, y = e / v.w % v.h, channel = e / v.w / v.h;
            T sum = 0;
#pragma unroll 1
            for (int ky = 0; ky < v.kh; ky++) {
                int fy = y + v.ph - ky * v.dh;
                if (fy < 0 || fy % v.sh != 0 || fy / v.sh >= v.oh) continue;
#pragma unroll 1
                for (int kx = 0; kx < v.kw; kx++) {
                    int fx = col + v.pw - kx * v.dw;
                    if (fx < 0 || fx % v.sw != 0 || fx / v.sw >= v.ow) continue;
                    int tap = (channel * v.kh + ky) * v.kw + kx, step = fy / v.sh * v.ow + fx / v.sw;
                    sum += rows ? from[step * taps + tap] : from[tap * steps + step];
                }
            }
            o[i64(image) * n + e] = sum;
        }
}

#define COLUMNS(name, T, of)                                                                                                              \
    extern "C" __global__ void name(T *o, const T *x, int images, int rows, int c, int h, int w, int oh, int ow, int kh, int kw, int sh,  \
                                    int sw, int ph, int pw, int dh, int dw) {                                                             \
        of<T>(o, x, images, rows, window{c, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw});                                               \
    }

COLUMNS(im2col_f32, float, im2col)
COLUMNS(im2col_f64, double, im2col)
COLUMNS(col2im_f32, float, col2im)
COLUMNS(col2im_f64, double, col2im)
