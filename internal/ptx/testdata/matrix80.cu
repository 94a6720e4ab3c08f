// Products of matrices by a warp.
// nvrtc: --gpu-architecture=compute_80
#define KERNEL(name) extern "C" __global__ void name
typedef unsigned u32;
typedef unsigned short u16;

__device__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// c (16x8) = a (16x16) b (16x8), of bf16, from rows in global memory; b by columns.
KERNEL(bf16)(const u16 *a, const u16 *b, float *c) {
  __shared__ __align__(16) u16 sa[16 * 16], sb[8 * 16];
  u32 l = threadIdx.x;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(sa + 8 * l)), "l"(a + 8 * l));
  asm volatile("cp.async.commit_group;");
  if (l < 16) asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(sb + 8 * l)), "l"(b + 8 * l));
  asm volatile("cp.async.commit_group;");
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();
  u32 x0, x1, x2, x3, y0, y1;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x0), "=r"(x1), "=r"(x2), "=r"(x3) : "r"(shared_address(sa + (l & 15) * 16 + (l >> 4) * 8)));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(y0), "=r"(y1) : "r"(shared_address(sb + (l & 7) * 16 + (l >> 3 & 1) * 8)));
  float d0 = 1, d1 = 1, d2 = 1, d3 = 1;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(y0), "r"(y1));
  u32 g = l >> 2, t = l & 3;
  c[g * 8 + 2 * t] = d0;
  c[g * 8 + 2 * t + 1] = d1;
  c[(g + 8) * 8 + 2 * t] = d2;
  c[(g + 8) * 8 + 2 * t + 1] = d3;
}

// The same of tf32: a is 16x8, b is 8x8 by columns.
KERNEL(tf32)(const float *a, const float *b, float *c) {
  u32 l = threadIdx.x, g = l >> 2, t = l & 3;
  u32 x[4], y[2];
  for (int k = 0; k < 4; k++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x[k]) : "f"(a[(g + 8 * (k & 1)) * 8 + t + 4 * (k >> 1)]));
  for (int k = 0; k < 2; k++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y[k]) : "f"(b[g * 8 + t + 4 * k]));
  float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  c[g * 8 + 2 * t] = d0;
  c[g * 8 + 2 * t + 1] = d1;
  c[(g + 8) * 8 + 2 * t] = d2;
  c[(g + 8) * 8 + 2 * t + 1] = d3;
}

// Reads what it copies before the copy has come.
KERNEL(not_waited)(const u32 *a, const u32 *b, u32 *c) {
  __shared__ u32 box[32];
  u32 l = threadIdx.x;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(box + l)), "l"(a + l));
  asm volatile("cp.async.commit_group;");
  __syncthreads();
  c[l] = box[31 - l];
  asm volatile("cp.async.wait_all;");
}

// Transposes 8 by 8.
KERNEL(transpose)(const u16 *a, u32 *c) {
  __shared__ __align__(16) u16 box[64];
  u32 l = threadIdx.x, v;
  box[2 * l] = a[2 * l];
  box[2 * l + 1] = a[2 * l + 1];
  __syncthreads();
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(shared_address(box + (l & 7) * 8)));
  c[l] = v;
}
