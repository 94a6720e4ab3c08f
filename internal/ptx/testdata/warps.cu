// What threads do together. Compiled by NVRTC 11.8 for compute_75.
#define KERNEL(name) extern "C" __global__ void name

KERNEL(lanes)(const int *a, int *out) {
  int t = threadIdx.x, v = a[t], lane = t & 31;
  int *o = out + 12 * t;
  o[0] = __shfl_sync(~0u, v, 5);
  o[1] = __shfl_sync(~0u, v, lane * 3, 8);
  o[2] = __shfl_up_sync(~0u, v, 3);
  o[3] = __shfl_down_sync(~0u, v, 5, 16);
  o[4] = __shfl_xor_sync(~0u, v, 9);
  o[5] = __ballot_sync(~0u, v > 0);
  o[6] = __any_sync(~0u, v == 7) * 2 + __all_sync(~0u, v > -1000);
  o[7] = __match_any_sync(~0u, v & 3);
  o[8] = lane < 16 ? __shfl_xor_sync(0xffffu, v, 1) : 0;
  o[9] = v > 0 ? (int)__activemask() : -1;
  o[10] = __syncthreads_count(v > 0);
  o[11] = __syncthreads_or(v == 7) * 2 + __syncthreads_and(v > -1000);
}

KERNEL(atomics)(float *f, double *d, unsigned *u, unsigned long long *q, int *s) {
  __shared__ int box;
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) box = 0;
  __syncthreads();
  atomicAdd(&box, t);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  atomicAdd(&u[0], 3u);
  atomicMax(&u[1], (unsigned)t * 7 % 100);
  atomicMin(&s[0], t - 50);
  atomicOr(&u[2], 1u << (t & 31));
  atomicAnd(&u[3], ~(1u << (t & 7)));
  atomicAdd(q, 1ull << 33);
  unsigned long long old = q[1], seen;
  do {
    seen = old;
    old = atomicCAS(&q[1], seen, seen + t);
  } while (old != seen);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(&s[1], box);
}
