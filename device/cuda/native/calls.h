#ifndef WEFT_CALLS_H
#define WEFT_CALLS_H

#include <cuda.h>
#include <string.h>

#include "lt.h"

// A goroutine's thread changes, so each call makes the context current before it does its work.
#define WITHIN(c, call) \
	CUresult r = cuCtxSetCurrent(c); \
	return r ? r : (call)

static inline CUresult weft_copy_in(CUcontext c, CUdeviceptr to, const void *from, size_t n, CUstream s) {
	WITHIN(c, cuMemcpyHtoDAsync(to, from, n, s));
}
static inline CUresult weft_copy_out(CUcontext c, void *to, CUdeviceptr from, size_t n, CUstream s) {
	WITHIN(c, cuMemcpyDtoHAsync(to, from, n, s));
}
static inline CUresult weft_copy(CUcontext c, CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
	WITHIN(c, cuMemcpyDtoDAsync(to, from, n, s));
}
// weft_reach opens the memory of another device's context for this one's copies, where the hardware can: *can says whether.
static inline CUresult weft_reach(CUcontext c, CUdevice d, CUcontext to, CUdevice other, int *can) {
	CUresult r = cuDeviceCanAccessPeer(can, d, other);
	if (!r && *can) {
		r = cuCtxSetCurrent(c);
		if (!r) r = cuCtxEnablePeerAccess(to, 0);
		if (r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) r = CUDA_SUCCESS;
		if (r == CUDA_ERROR_TOO_MANY_PEERS || r == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) r = CUDA_SUCCESS, *can = 0;
	}
	return r;
}
static inline CUresult weft_copy_to(CUcontext c, CUdeviceptr to, CUcontext there, CUdeviceptr from, size_t n, CUstream s) {
	WITHIN(c, c == there ? cuMemcpyDtoDAsync(to, from, n, s) : cuMemcpyPeerAsync(to, there, from, c, n, s));
}
static inline CUresult weft_zero(CUcontext c, CUdeviceptr at, size_t n, CUstream s) { WITHIN(c, cuMemsetD8Async(at, 0, n, s)); }
static inline CUresult weft_record(CUcontext c, CUevent e, CUstream s) { WITHIN(c, cuEventRecord(e, s)); }
static inline CUresult weft_wait(CUcontext c, CUstream s, CUevent e) { WITHIN(c, cuStreamWaitEvent(s, e, 0)); }
static inline CUresult weft_sync(CUcontext c, CUstream s) { WITHIN(c, cuStreamSynchronize(s)); }
static inline CUresult weft_event_sync(CUcontext c, CUevent e) { WITHIN(c, cuEventSynchronize(e)); }
static inline CUresult weft_replay(CUcontext c, CUgraphExec g, CUstream s) { WITHIN(c, cuGraphLaunch(g, s)); }
static inline CUresult weft_graph_free(CUcontext c, CUgraphExec g) { WITHIN(c, cuGraphExecDestroy(g)); }
static inline CUresult weft_pin(CUcontext c, void **p, size_t n) { WITHIN(c, cuMemHostAlloc(p, n, CU_MEMHOSTALLOC_PORTABLE)); }

// Relaxed: other threads allocate and load meanwhile, and the end may be reached on another thread than the beginning.
static inline CUresult weft_capture(CUcontext c, CUstream s) { WITHIN(c, cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED)); }

// weft_captured ends a capture; without keep, what was recorded is thrown away.
static inline CUresult weft_captured(CUcontext c, CUstream s, int keep, CUgraphExec *out) {
	CUgraph g = NULL;
	CUresult r = cuCtxSetCurrent(c);
	if (!r) r = cuStreamEndCapture(s, &g);
	if (!r && keep) r = cuGraphInstantiateWithFlags(out, g, 0);
	if (g) cuGraphDestroy(g);
	return r;
}

static inline CUresult weft_load(CUcontext c, CUmodule *m, const void *image, char *log, size_t n) {
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)n};
	WITHIN(c, cuModuleLoadDataEx(m, image, 2, options, values));
}
static inline CUresult weft_allow_shared(CUcontext c, CUfunction f, int n) {
	WITHIN(c, cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, n));
}

// Drivers of CUDA 12.4 and later know a kernel's parameters; their headers declare this, earlier ones do not.
#if CUDA_VERSION < 12040
extern CUresult cuFuncGetParamInfo(CUfunction, size_t, size_t *, size_t *);
#endif
// weft_params is how many bytes a kernel's parameters have, or -1 where the driver cannot say.
static inline long weft_params(CUcontext c, CUfunction f) {
	size_t at, n, end = 0;
	if (cuCtxSetCurrent(c)) return -1;
	for (size_t k = 0;; k++) {
		CUresult r = cuFuncGetParamInfo(f, k, &at, &n);
		if (r == CUDA_ERROR_INVALID_VALUE) return end; // there is no parameter k
		if (r) return -1;
		end = at + n;
	}
}

// weft_export refuses an address that is not an allocation's beginning: who opens the handle gets the beginning.
static inline CUresult weft_export(CUcontext c, CUdeviceptr at, void *handle) {
	CUdeviceptr base;
	CUipcMemHandle h;
	CUresult r = cuCtxSetCurrent(c);
	if (!r) r = cuMemGetAddressRange(&base, NULL, at);
	if (!r && base != at) r = CUDA_ERROR_INVALID_VALUE;
	if (!r) r = cuIpcGetMemHandle(&h, at);
	if (!r) memcpy(handle, &h, sizeof h);
	return r;
}
static inline CUresult weft_import(CUcontext c, CUdeviceptr *at, const void *handle) {
	CUipcMemHandle h;
	memcpy(&h, handle, sizeof h);
	WITHIN(c, cuIpcOpenMemHandle(at, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}
static inline CUresult weft_unimport(CUcontext c, CUdeviceptr at) { WITHIN(c, cuIpcCloseMemHandle(at)); }

// One launch of a list, as Go wrote it down. No blocks: a product, whose arguments are addresses.
typedef struct {
	uint64_t func;
	uint64_t off; // of the arguments
	uint32_t len, shared;
	uint32_t gx, gy, gz, bx, by, bz;
} weft_launch;

// weft_run submits n launches: how many were in the upper half, and what ended them in the lower.
static inline int64_t weft_run(CUcontext c, CUstream s, const weft_launch *l, int n, char *args) {
	CUresult r = cuCtxSetCurrent(c);
	int k = 0;
	for (; !r && k < n; k++, l++) {
		if (!l->gx) {
			r = weft_lt_run((weft_product *)(uintptr_t)l->func, s, (const uint64_t *)(args + l->off));
		} else {
			size_t len = l->len;
			void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, args + l->off, CU_LAUNCH_PARAM_BUFFER_SIZE, &len, CU_LAUNCH_PARAM_END};
			r = cuLaunchKernel((CUfunction)(uintptr_t)l->func, l->gx, l->gy, l->gz, l->bx, l->by, l->bz, l->shared, s, NULL, len ? extra : NULL);
		}
	}
	return (int64_t)(r ? k - 1 : k) << 32 | r;
}

#endif
