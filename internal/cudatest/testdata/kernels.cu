// The kernels of the suite. Compiled by NVRTC 11.8 for compute_75.
#define KERNEL(name) extern "C" __global__ void name

// out[i] = value for i < n
KERNEL(weft_fill)(unsigned *out, unsigned value, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}

// out[i] = a[i] * 3 + b[i] for i < n
KERNEL(weft_mix)(const unsigned *a, const unsigned *b, unsigned *out, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] * 3 + b[i];
}

// out[b] = the sum of threads' in[b * blockDim + t], by way of dynamic shared memory of 4 bytes a thread
KERNEL(weft_sum)(const unsigned *in, unsigned *out) {
  extern __shared__ unsigned box[];
  box[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (unsigned n = blockDim.x / 2; n > 0; n /= 2) {
    if (threadIdx.x < n) box[threadIdx.x] += box[threadIdx.x + n];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = box[0];
}

// writes where there is no memory
KERNEL(weft_wild)(unsigned value) { *(unsigned *)64 = value; }
