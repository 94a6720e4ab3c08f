// What a convolution's kernel sees, laid out in columns, and back. The images of a batch are numbered by blockIdx.y.

#include "common.cuh"

// window slides over images of c channels of h×w, in oh×ow steps.
struct window {
    int c, h, w, oh, ow;
    int kh, kw, sh, sw, ph, pw, dh, dw; // kernel, stride, padding before, dilation

    // sees is the place in a channel, -1 for padding.
    int sees(int oy, int ox, int ky, int kx) const {
        int y = oy * sh - ph + ky * dh, col = ox * sw - pw + kx * dw;
        return y >= 0 && y < h && col >= 0 && col < w ? y * w + col : -1;
    }
};

template <typename T>
T seen(const T *x, const window &v, int channel, int oy, int ox, int ky, int kx) {
    int at = v.sees(oy, ox, ky, kx);
    return at >= 0 ? x[channel * v.h * v.w + at] : T(0);
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

// What is not finite makes NaN of the zeros that stand for padding: where a result is NaN it is added up again, without them. The results are those of
// a convolution of x with o kernels w, numbered as in memory.
template <typename T> void conv_again(T *y, const T *x, const T *w, int images, int o, window v) {
    const int taps = v.c * v.kh * v.kw, steps = v.oh * v.ow, n = o * steps;
    for (int image = blockIdx.y; image < images; image += gridDim.y)
        for (int e = blockIdx.x * blockDim.x + threadIdx.x; e < n; e += gridDim.x * blockDim.x) {
            T &at = y[i64(image) * n + e];
            if (at == at) continue;
            const T *from = x + i64(image) * v.c * v.h * v.w;
            int step = e % steps;
            T sum = 0;
#pragma unroll 1
            for (int tap = 0; tap < taps && sum == sum; tap++) {
                int in = v.sees(step / v.ow, step % v.ow, tap / v.kw % v.kh, tap % v.kw);
                if (in >= 0) sum += from[tap / (v.kh * v.kw) * v.h * v.w + in] * w[e / steps * taps + tap];
            }
            at = sum;
        }
}

// The same of the gradient of w, from that of the results.
template <typename T> void conv_grad_again(T *w, const T *x, const T *gy, int images, int o, window v) {
    const int taps = v.c * v.kh * v.kw, steps = v.oh * v.ow, n = o * taps;
    for (int e = blockIdx.x * blockDim.x + threadIdx.x; e < n; e += gridDim.x * blockDim.x) {
        if (w[e] == w[e]) continue;
        int tap = e % taps;
        T sum = 0;
#pragma unroll 1
        for (int image = 0; image < images; image++) {
            const T *from = x + (i64(image) * v.c + tap / (v.kh * v.kw)) * v.h * v.w, *by = gy + (i64(image) * o + e / taps) * steps;
#pragma unroll 1
            for (int step = 0; step < steps && sum == sum; step++) {
                int in = v.sees(step / v.ow, step % v.ow, tap / v.kw % v.kh, tap % v.kw);
                if (in >= 0) sum += from[in] * by[step];
            }
        }
        w[e] = sum;
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

#define AGAIN(name, T, of)                                                                                                                \
    extern "C" __global__ void name(T *o, const T *a, const T *b, int images, int chans, int c, int h, int w, int oh, int ow, int kh,     \
                                    int kw, int sh, int sw, int ph, int pw, int dh, int dw) {                                             \
        of<T>(o, a, b, images, chans, window{c, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw});                                           \
    }

AGAIN(conv_again_f32, float, conv_again)
AGAIN(conv_again_f64, double, conv_again)
AGAIN(conv_grad_again_f32, float, conv_grad_again)
AGAIN(conv_grad_again_f64, double, conv_grad_again)
