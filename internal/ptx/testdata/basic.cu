// Kernels of the plainest kind. Compiled by NVRTC 11.8 for compute_75.
#define KERNEL(name) extern "C" __global__ void name

__device__ __forceinline__ float warpSum(float v) {
  for (int k = 16; k > 0; k /= 2) v += __shfl_xor_sync(0xffffffffu, v, k);
  return v;
}

__device__ __forceinline__ float blockSum(float v, float *red) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  v = warpSum(v);
  if (lane == 0) red[warp] = v;
  __syncthreads();
  v = lane < (blockDim.x + 31) / 32 ? red[lane] : 0.f;
  v = warpSum(v);
  __syncthreads();
  return v;
}

KERNEL(vec_add)(const float *a, const float *b, float *c, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

struct Axpby { float alpha, beta; long long n; };

KERNEL(axpby)(Axpby p, const float *a, float *c) {
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += (long long)gridDim.x * blockDim.x)
    c[i] = p.alpha * a[i] + p.beta * c[i];
}

KERNEL(bias_gelu)(const float *x, const float *b, float *y, int n, int cols) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float v = x[i] + b[i % cols];
    y[i] = 0.5f * v * (1.f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
  }
}

KERNEL(softmax)(const float *x, float *y, int cols) {
  __shared__ float red[32];
  const float *row = x + (long long)blockIdx.x * cols;
  float m = -3.4e38f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) m = fmaxf(m, row[c]);
  for (int k = 16; k > 0; k /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, k));
  if ((threadIdx.x & 31) == 0) red[threadIdx.x >> 5] = m;
  __syncthreads();
  m = red[0];
  for (int k = 1; k < blockDim.x / 32; k++) m = fmaxf(m, red[k]);
  __syncthreads();
  float s = 0;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) s += expf(row[c] - m);
  s = blockSum(s, red);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) y[(long long)blockIdx.x * cols + c] = expf(row[c] - m) / s;
}

KERNEL(layernorm)(const float *x, const float *g, const float *b, float *y, float eps, int cols) {
  extern __shared__ float cache[];
  __shared__ float red[32];
  long long base = (long long)blockIdx.x * cols;
  float s = 0;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) { float v = x[base + c]; cache[c] = v; s += v; }
  float mu = blockSum(s, red) / cols, q = 0;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) { float d = cache[c] - mu; q += d * d; }
  float rs = rsqrtf(blockSum(q, red) / cols + eps);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) y[base + c] = (cache[c] - mu) * rs * g[c] + b[c];
}

// Tiles of 16 x 16: c = a b, with a of n x k and b of k x m.
KERNEL(matmul)(const float *a, const float *b, float *c, int n, int k, int m) {
  __shared__ float ta[16][16], tb[16][16];
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int at = 0; at < k; at += 16) {
    ta[threadIdx.y][threadIdx.x] = row < n && at + threadIdx.x < k ? a[row * k + at + threadIdx.x] : 0;
    tb[threadIdx.y][threadIdx.x] = col < m && at + threadIdx.y < k ? b[(at + threadIdx.y) * m + col] : 0;
    __syncthreads();
    for (int j = 0; j < 16; j++) sum += ta[threadIdx.y][j] * tb[j][threadIdx.x];
    __syncthreads();
  }
  if (row < n && col < m) c[row * m + col] = sum;
}

// The last block to finish sums the parts.
KERNEL(sum_ticket)(const float *x, float *part, unsigned *ticket, float *out, long long n) {
  __shared__ float red[32];
  __shared__ bool last;
  float s = 0;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) s += x[i];
  s = blockSum(s, red);
  if (threadIdx.x == 0) {
    part[blockIdx.x] = s;
    __threadfence();
    last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  s = 0;
  for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) s += ((volatile float *)part)[i];
  s = blockSum(s, red);
  if (threadIdx.x == 0) *out = s;
}
