// Kernels with mistakes, each of which the machine finds. Compiled by NVRTC 11.8 for compute_75.
#define KERNEL(name) extern "C" __global__ void name

KERNEL(right)(const float *in, float *out) {
  __shared__ float box[256];
  box[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  float v = box[255 - threadIdx.x];
  __syncthreads();
  box[threadIdx.x] = v;
  __syncthreads();
  out[threadIdx.x] = box[threadIdx.x ^ 1];
}

KERNEL(no_barrier_after_write)(const float *in, float *out) {
  __shared__ float box[256];
  box[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = box[255 - threadIdx.x];
}

KERNEL(reads_behind)(const float *in, float *out) {
  __shared__ float box[256];
  box[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = box[threadIdx.x < 32 ? threadIdx.x : threadIdx.x - 32];
}

KERNEL(no_barrier_after_read)(const float *in, float *out) {
  __shared__ float box[256];
  box[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  float v = box[255 - threadIdx.x];
  box[threadIdx.x] = v;
  __syncthreads();
  out[threadIdx.x] = box[threadIdx.x ^ 1];
}

KERNEL(last_writes)(const float *in, float *out) {
  __shared__ float box[256];
  box[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = box[0];
  if (threadIdx.x == 255) box[0] = 1;
}

KERNEL(no_barrier_in_warp)(const float *in, float *out) {
  __shared__ float box[256];
  box[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = box[threadIdx.x ^ 1];
}

KERNEL(barrier_of_warp)(const float *in, float *out) {
  __shared__ float box[256];
  box[threadIdx.x] = in[threadIdx.x];
  __syncwarp();
  out[threadIdx.x] = box[threadIdx.x ^ 1];
}

// All lanes of a warp read what one of them writes anew, with a barrier of the warp between, or none.
KERNEL(read_by_a_warp)(const float *in, float *out) {
  __shared__ float box[8];
  float sum = 0;
  for (int k = 0; k < 4; k++) {
    if (threadIdx.x % 32 == k) box[threadIdx.x / 32] = in[threadIdx.x];
    __syncwarp();
    sum += box[threadIdx.x / 32];
    __syncwarp();
  }
  out[threadIdx.x] = sum;
}

KERNEL(read_by_a_warp_unordered)(const float *in, float *out) {
  __shared__ volatile float box[8];
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < 4; k++) {
    if (threadIdx.x % 32 == k) box[threadIdx.x / 32] = in[threadIdx.x];
    __syncwarp();
    sum += box[threadIdx.x / 32];
  }
  out[threadIdx.x] = sum;
}

KERNEL(two_write)(const float *in, float *out) {
  __shared__ float box[256];
  box[threadIdx.x / 2] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = box[threadIdx.x / 2];
}

KERNEL(unwritten)(const float *in, float *out) {
  __shared__ float box[256];
  if (threadIdx.x < 200) box[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = box[threadIdx.x];
}

KERNEL(over)(const float *in, float *out) { out[threadIdx.x] = in[threadIdx.x + 1]; }
KERNEL(under)(const float *in, float *out) { out[(int)threadIdx.x - 1] = in[threadIdx.x]; }
KERNEL(nowhere)(const float *in, float *out) { *(float *)64 = in[0]; }
KERNEL(askew)(const float *in, float *out) { out[threadIdx.x] = *(const float *)((const char *)in + 2 * (threadIdx.x / 2)); }
KERNEL(over_shared)(const float *in, float *out) {
  extern __shared__ float dyn[];
  dyn[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = dyn[threadIdx.x];
}

KERNEL(missing_lane)(const float *in, float *out) {
  float v = in[threadIdx.x];
  if (threadIdx.x % 32 != 7) v += __shfl_xor_sync(0xffffffffu, v, 1);
  out[threadIdx.x] = v;
}

KERNEL(two_shuffles)(const float *in, float *out) {
  float v = in[threadIdx.x];
  if (threadIdx.x % 32 < 16) v += __shfl_xor_sync(0xffffffffu, v, 1);
  else v *= __shfl_down_sync(0xffffffffu, v, 2);
  out[threadIdx.x] = v;
}

KERNEL(not_in_mask)(const float *in, float *out) { out[threadIdx.x] = __shfl_xor_sync(0xffffu, in[threadIdx.x], 1); }

KERNEL(from_outside)(const float *in, float *out) {
  float v = in[threadIdx.x];
  if (threadIdx.x % 32 < 16) v += __shfl_xor_sync(0xffffu, v, 16);
  out[threadIdx.x] = v;
}

KERNEL(divergent_barrier)(const float *in, float *out) {
  float v = in[threadIdx.x];
  if (threadIdx.x % 2) { __syncthreads(); v += 1; }
  out[threadIdx.x] = v;
}

KERNEL(some_warps)(const float *in, float *out) {
  float v = in[threadIdx.x];
  if (threadIdx.x < 32) { __syncthreads(); v += 1; } else { v *= 2; __syncthreads(); v *= 3; }
  out[threadIdx.x] = v;
}

KERNEL(endless)(const float *in, volatile float *out) { while (out[0] != 12345.f) out[1] = in[0]; }
KERNEL(blocks_race)(const float *in, float *out) { out[threadIdx.x] = in[threadIdx.x] + blockIdx.x; }
KERNEL(blocks_apart)(const float *in, float *out) { out[128 * blockIdx.x + threadIdx.x] = in[threadIdx.x]; }
KERNEL(trap)(const float *in, float *out) { if (threadIdx.x == 40) __trap(); }
