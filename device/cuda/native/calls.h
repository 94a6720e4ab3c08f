#ifndef WEFT_CALLS_H
#define WEFT_CALLS_H

#include <cuda.h>
#include <string.h>

#include "lt.h"

// A goroutine's thread changes, so each call makes the context current before it does its work.
#define WITHIN(c, ...) \
	TRY(cuCtxSetCurrent, c); \
	TRY(__VA_ARGS__); \
	return FINE

static inline weft_result weft_copy_in(CUcontext c, CUdeviceptr to, const void *from, size_t n, CUstream s) {
	WITHIN(c, cuMemcpyHtoDAsync, to, from, n, s);
}
static inline weft_result weft_copy_out(CUcontext c, void *to, CUdeviceptr from, size_t n, CUstream s) {
	WITHIN(c, cuMemcpyDtoHAsync, to, from, n, s);
}
static inline weft_result weft_copy(CUcontext c, CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
	WITHIN(c, cuMemcpyDtoDAsync, to, from, n, s);
}
// weft_reach opens the memory of another device's context for this one's copies, where the hardware can: *can says whether.
static inline weft_result weft_reach(CUcontext c, CUdevice d, CUcontext to, CUdevice other, int *can) {
	TRY(cuDeviceCanAccessPeer, can, d, other);
	if (!*can) return FINE;
	TRY(cuCtxSetCurrent, c);
	CUresult r = cuCtxEnablePeerAccess(to, 0);
	*can = !r || r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	int known = *can || r == CUDA_ERROR_TOO_MANY_PEERS || r == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	return known ? FINE : (weft_result){r, "cuCtxEnablePeerAccess"};
}
static inline weft_result weft_copy_to(CUcontext c, CUdeviceptr to, CUcontext there, CUdeviceptr from, size_t n, CUstream s) {
	if (c == there) return weft_copy(c, to, from, n, s);
	WITHIN(c, cuMemcpyPeerAsync, to, there, from, c, n, s);
}
static inline weft_result weft_zero(CUcontext c, CUdeviceptr at, size_t n, CUstream s) { WITHIN(c, cuMemsetD8Async, at, 0, n, s); }
static inline weft_result weft_record(CUcontext c, CUevent e, CUstream s) { WITHIN(c, cuEventRecord, e, s); }
static inline weft_result weft_wait(CUcontext c, CUstream s, CUevent e) { WITHIN(c, cuStreamWaitEvent, s, e, 0); }
static inline weft_result weft_sync(CUcontext c, CUstream s) { WITHIN(c, cuStreamSynchronize, s); }
static inline weft_result weft_event_sync(CUcontext c, CUevent e) { WITHIN(c, cuEventSynchronize, e); }
static inline weft_result weft_replay(CUcontext c, CUgraphExec g, CUstream s) { WITHIN(c, cuGraphLaunch, g, s); }
static inline weft_result weft_graph_free(CUcontext c, CUgraphExec g) { WITHIN(c, cuGraphExecDestroy, g); }
static inline weft_result weft_pin(CUcontext c, void **p, size_t n) { WITHIN(c, cuMemHostAlloc, p, n, CU_MEMHOSTALLOC_PORTABLE); }

// Relaxed: other threads allocate and load meanwhile, and the end may be reached on another thread than the beginning.
static inline weft_result weft_capture(CUcontext c, CUstream s) { WITHIN(c, cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_RELAXED); }

// weft_captured ends a capture, whatever else fails, as the stream would go on recording; without keep, what was recorded is thrown away.
static inline weft_result weft_captured(CUcontext c, CUstream s, int keep, CUgraphExec *out) {
	CUgraph g = NULL;
	weft_result r = {cuCtxSetCurrent(c), "cuCtxSetCurrent"};
	CUresult end = cuStreamEndCapture(s, &g);
	if (!r.code) r = (weft_result){end, "cuStreamEndCapture"};
	if (!r.code && keep) r = (weft_result){cuGraphInstantiateWithFlags(out, g, 0), "cuGraphInstantiate"};
	if (g) cuGraphDestroy(g);
	return r;
}

static inline weft_result weft_load(CUcontext c, CUmodule *m, const void *image, char *log, size_t n) {
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)n};
	WITHIN(c, cuModuleLoadDataEx, m, image, 2, options, values);
}
static inline weft_result weft_allow_shared(CUcontext c, CUfunction f, int n) {
	WITHIN(c, cuFuncSetAttribute, f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, n);
}

// Drivers of CUDA 12.4 and later know a kernel's parameters; their headers declare this, earlier ones do not.
#if CUDA_VERSION < 12040
extern CUresult cuFuncGetParamInfo(CUfunction, size_t, size_t *, size_t *);
#endif
// weft_params tells how many bytes a kernel's parameters have, or -1 where the driver cannot say.
static inline weft_result weft_params(CUcontext c, CUfunction f, int *bytes) {
	TRY(cuCtxSetCurrent, c);
	CUresult r = CUDA_SUCCESS;
	*bytes = 0;
	for (size_t k = 0, at, n; !(r = cuFuncGetParamInfo(f, k, &at, &n)); k++) *bytes = at + n;
	if (r != CUDA_ERROR_INVALID_VALUE) *bytes = -1; // else there is no parameter k
	return FINE;
}

// Drivers of CUDA 12 and later encode maps; their headers declare this, and types for what are numbers here.
#if CUDA_VERSION < 12000
extern CUresult cuTensorMapEncodeTiled(void *, unsigned, cuuint32_t, void *, const uint64_t *, const uint64_t *, const cuuint32_t *, const cuuint32_t *, unsigned, unsigned,
	unsigned, unsigned);
#endif
enum { WEFT_MAP_BYTES = 128, WEFT_MAP_BFLOAT16 = 9, WEFT_MAP_SWIZZLE_128B = 3, WEFT_MAP_L2_256B = 3 };
#if CUDA_VERSION >= 12000
_Static_assert(WEFT_MAP_BYTES == sizeof(CUtensorMap) && WEFT_MAP_BFLOAT16 == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 && WEFT_MAP_SWIZZLE_128B == CU_TENSOR_MAP_SWIZZLE_128B &&
	WEFT_MAP_L2_256B == CU_TENSOR_MAP_L2_PROMOTION_L2_256B, "numbers of NVIDIA's headers");
#endif
// weft_map encodes a map of an array of bfloat16 of four dimensions: its extents, strides and those of a tile.
static inline weft_result weft_map(CUcontext c, void *map, CUdeviceptr at, const uint64_t *extents, const uint64_t *strides, const cuuint32_t *box) {
	_Alignas(64) char raw[WEFT_MAP_BYTES];
	const cuuint32_t steps[] = {1, 1, 1, 1};
	TRY(cuCtxSetCurrent, c);
	TRY(cuTensorMapEncodeTiled, (void *)raw, WEFT_MAP_BFLOAT16, 4, (void *)(uintptr_t)at, (const void *)extents, (const void *)strides, box, steps, 0, WEFT_MAP_SWIZZLE_128B,
		WEFT_MAP_L2_256B, 0);
	memcpy(map, raw, sizeof raw);
	return FINE;
}

static inline weft_result weft_version(int *v) {
	TRY(cuDriverGetVersion, v);
	return FINE;
}

// weft_words is what the driver says of a number; nothing where it does not know it.
static inline const char *weft_words(CUresult r) {
	const char *s = NULL;
	return cuGetErrorString(r, &s) ? NULL : s;
}

// weft_export refuses an address that is not an allocation's beginning: who opens the handle gets the beginning.
static inline weft_result weft_export(CUcontext c, CUdeviceptr at, void *handle) {
	CUdeviceptr base;
	CUipcMemHandle h;
	TRY(cuCtxSetCurrent, c);
	TRY(cuMemGetAddressRange, &base, NULL, at);
	if (base != at) return (weft_result){CUDA_ERROR_INVALID_VALUE, "cuIpcGetMemHandle"};
	TRY(cuIpcGetMemHandle, &h, at);
	memcpy(handle, &h, sizeof h);
	return FINE;
}
static inline weft_result weft_import(CUcontext c, CUdeviceptr *at, const void *handle) {
	CUipcMemHandle h;
	memcpy(&h, handle, sizeof h);
	WITHIN(c, cuIpcOpenMemHandle, at, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}
static inline weft_result weft_unimport(CUcontext c, CUdeviceptr at) { WITHIN(c, cuIpcCloseMemHandle, at); }

// One launch of a list, as Go wrote it down. No blocks: a product, whose arguments are addresses.
typedef struct {
	uint64_t func;
	uint64_t off; // of the arguments
	uint32_t len, shared;
	uint32_t gx, gy, gz, bx, by, bz;
} weft_launch;

// weft_run submits n launches, up to the one that fails; *at is its place.
static inline weft_result weft_run(CUcontext c, CUstream s, const weft_launch *l, int n, char *args, int *at) {
	TRY(cuCtxSetCurrent, c);
	for (*at = 0; *at < n; ++*at, l++) {
		if (!l->gx) {
			weft_result r = weft_lt_run((weft_product *)(uintptr_t)l->func, s, (const uint64_t *)(args + l->off));
			if (r.code) return r;
			continue;
		}
		size_t len = l->len;
		void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, args + l->off, CU_LAUNCH_PARAM_BUFFER_SIZE, &len, CU_LAUNCH_PARAM_END};
		TRY(cuLaunchKernel, (CUfunction)(uintptr_t)l->func, l->gx, l->gy, l->gz, l->bx, l->by, l->bz, l->shared, s, NULL, len ? extra : NULL);
	}
	return FINE;
}

#endif
