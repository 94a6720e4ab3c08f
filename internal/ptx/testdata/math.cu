// Functions of the mathematics library, with their tables, slow paths and conversions. Compiled by NVRTC 11.8 for compute_75.
#define KERNEL(name) extern "C" __global__ void name
#define MAP1(name, type, expr) \
  KERNEL(name)(const type *a, type *out, int n) { \
    int i = blockIdx.x * blockDim.x + threadIdx.x; \
    if (i < n) { type x = a[i]; out[i] = expr; } \
  }

MAP1(f_exp, float, expf(x))
MAP1(f_log, float, logf(x))
MAP1(f_sin, float, sinf(x))
MAP1(f_cos, float, cosf(x))
MAP1(f_tan, float, tanf(x))
MAP1(f_tanh, float, tanhf(x))
MAP1(f_erf, float, erff(x))
MAP1(f_pow, float, powf(fabsf(x), 1.7f))
MAP1(f_log1p, float, log1pf(x))
MAP1(f_expm1, float, expm1f(x))
MAP1(f_cbrt, float, cbrtf(x))
MAP1(f_round, float, roundf(x) + floorf(x) * 2 + ceilf(x) * 3 + rintf(x) * 5)
MAP1(f_fast, float, __expf(x) + __sinf(x) + __fdividef(x, 3.f) + __logf(fabsf(x)))
MAP1(d_exp, double, exp(x))
MAP1(d_log, double, log(x))
MAP1(d_sin, double, sin(x))
MAP1(d_tanh, double, tanh(x))
MAP1(d_erf, double, erf(x))
MAP1(d_div, double, 1 / x + sqrt(fabs(x)) / 3)

__device__ __noinline__ float power(float x, int n) {
  float r = 1;
  while (n > 0) {
    if (n & 1) r *= x;
    x *= x;
    n >>= 1;
  }
  return r;
}

__constant__ float table[8] = {1, -2, 3.5f, 4, 5, 6, 7, 8e3f};
__device__ int counters[4] = {10, 20, 30};

// Calls, tables, local arrays and divergence.
KERNEL(mixed)(const float *a, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float local[16];
  for (int k = 0; k < 16; k++) local[k] = a[i] * k;
  float r = power(a[i], i % 7) + table[i % 8];
  if (i % 3 == 0) r += local[i % 16];
  else if (i % 5 == 0) r -= power(local[(i * 7) % 16], 2);
  out[i] = r;
  atomicAdd(&counters[i % 4], 1);
}

KERNEL(counts)(int *out) { if (threadIdx.x < 4) out[threadIdx.x] = counters[threadIdx.x]; }

KERNEL(vectors)(const float4 *a, const double2 *b, float4 *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = a[i];
  double2 d = b[i];
  out[i] = make_float4(v.w + (float)d.x, v.z - (float)d.y, v.y * 2, v.x);
}

KERNEL(integers)(const int *a, const long long *b, long long *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int x = a[i];
  long long y = b[i];
  unsigned u = (unsigned)x;
  long long r = __popc(u) + __clz(x) + __brev(u) % 1000 + __ffs(x) + __mulhi(x, 12345) + __mul64hi(y, 987654321987654321ll);
  r += y / (x | 1) + y % 1000003 + x / 7 + u / 10 + (x >> 3) + (u >> 5) + (y << 3) + (y >> 9);
  r ^= __byte_perm(u, ~u, 0x4371) + __funnelshift_l(u, u * 3, 9) + __funnelshift_r(u, u * 5, x & 31);
  r += min(x, 17) + max(x, -12) + abs(x) + (char)x + (short)y + (unsigned char)x + __popcll(y) + __clzll(y);
  r += (x > 0 && y < 0) ? 5 : (x == 3 || y != 9) ? 6 : 7;
  out[i] = r;
}
