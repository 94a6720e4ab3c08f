/* For those who build with an installed toolkit's header: gorgonia.org/cu v0.9.6 calls five functions by names that mean others since CUDA 13. */
#ifndef WEFT_CUDA_SHIM_H
#define WEFT_CUDA_SHIM_H
#include_next <cuda.h>

#if CUDA_VERSION >= 13000
static inline CUmemLocation weft_place(CUdevice d) {
	CUmemLocation at = {0};
	at.type = d < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
	at.id = d < 0 ? 0 : d;
	return at;
}
static inline CUresult weft_ctx_create(CUcontext *c, unsigned flags, CUdevice d) { return cuCtxCreate(c, NULL, flags, d); }
static inline CUresult weft_advise(CUdeviceptr p, size_t n, CUmem_advise a, CUdevice d) { return cuMemAdvise(p, n, a, weft_place(d)); }
static inline CUresult weft_prefetch(CUdeviceptr p, size_t n, CUdevice d, CUstream s) { return cuMemPrefetchAsync(p, n, weft_place(d), 0, s); }
static inline CUresult weft_add_edges(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n) {
	return cuGraphAddDependencies(g, from, to, NULL, n);
}
static inline CUresult weft_edges(CUgraph g, CUgraphNode *from, CUgraphNode *to, size_t *n) { return cuGraphGetEdges(g, from, to, NULL, n); }
#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#define cuCtxCreate weft_ctx_create
#define cuMemAdvise weft_advise
#define cuMemPrefetchAsync weft_prefetch
#define cuGraphAddDependencies weft_add_edges
#define cuGraphGetEdges weft_edges
#endif
#endif
