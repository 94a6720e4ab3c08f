/* The driver's functions that gorgonia.org/cu v0.9.6 and this package refer to, under the names that libcuda.so.1 exports, with headers
 * of CUDA 11.8 to 13.0. */
#define SYMBOLS(F) \
	F(cuArray3DCreate_v2) F(cuArray3DGetDescriptor_v2) F(cuArrayCreate_v2) F(cuArrayDestroy) F(cuArrayGetDescriptor_v2) \
	F(cuCtxCreate_v2) F(cuCtxCreate_v4) F(cuCtxDestroy_v2) F(cuCtxDisablePeerAccess) F(cuCtxEnablePeerAccess) F(cuCtxGetApiVersion) \
	F(cuCtxGetCacheConfig) F(cuCtxGetCurrent) F(cuCtxGetDevice) F(cuCtxGetFlags) F(cuCtxGetLimit) F(cuCtxGetSharedMemConfig) \
	F(cuCtxGetStreamPriorityRange) F(cuCtxPopCurrent_v2) F(cuCtxPushCurrent_v2) F(cuCtxResetPersistingL2Cache) F(cuCtxSetCacheConfig) \
	F(cuCtxSetCurrent) F(cuCtxSetLimit) F(cuCtxSetSharedMemConfig) F(cuCtxSynchronize) F(cuDeviceCanAccessPeer) F(cuDeviceGet) \
	F(cuDeviceGetAttribute) F(cuDeviceGetCount) F(cuDeviceGetName) F(cuDeviceGetP2PAttribute) F(cuDeviceGetUuid) \
	F(cuDeviceGetUuid_v2) F(cuDevicePrimaryCtxGetState) F(cuDevicePrimaryCtxRelease_v2) F(cuDevicePrimaryCtxReset_v2) \
	F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxSetFlags_v2) F(cuDeviceTotalMem_v2) F(cuDriverGetVersion) F(cuEventCreate) \
	F(cuEventDestroy_v2) F(cuEventElapsedTime) F(cuEventElapsedTime_v2) F(cuEventQuery) F(cuEventRecord) F(cuEventSynchronize) \
	F(cuFuncGetAttribute) F(cuFuncGetParamInfo) F(cuFuncSetAttribute) F(cuFuncSetCacheConfig) F(cuFuncSetSharedMemConfig) \
	F(cuGetErrorName) F(cuGetErrorString) F(cuGraphAddChildGraphNode) F(cuGraphAddDependencies) F(cuGraphAddDependencies_v2) \
	F(cuGraphAddEmptyNode) F(cuGraphAddHostNode) F(cuGraphAddKernelNode) F(cuGraphAddKernelNode_v2) F(cuGraphAddMemcpyNode) \
	F(cuGraphAddMemsetNode) F(cuGraphClone) F(cuGraphCreate) F(cuGraphDestroy) F(cuGraphDestroyNode) F(cuGraphExecDestroy) \
	F(cuGraphGetEdges) F(cuGraphGetEdges_v2) F(cuGraphInstantiateWithFlags) F(cuGraphLaunch) F(cuIpcCloseMemHandle) \
	F(cuIpcGetMemHandle) F(cuIpcOpenMemHandle_v2) F(cuLaunchKernel) F(cuLinkAddData_v2) F(cuLinkAddFile_v2) F(cuLinkComplete) \
	F(cuLinkCreate_v2) F(cuLinkDestroy) F(cuMemAdvise) F(cuMemAdvise_v2) F(cuMemAllocManaged) F(cuMemAllocPitch_v2) F(cuMemAlloc_v2) \
	F(cuMemFreeHost) F(cuMemFree_v2) F(cuMemGetAddressRange_v2) F(cuMemGetInfo_v2) F(cuMemHostAlloc) F(cuMemPrefetchAsync) \
	F(cuMemPrefetchAsync_v2) F(cuMemcpy) F(cuMemcpy2DAsync_v2) F(cuMemcpy2DUnaligned_v2) F(cuMemcpy2D_v2) F(cuMemcpy3DAsync_v2) \
	F(cuMemcpy3DPeer) F(cuMemcpy3DPeerAsync) F(cuMemcpy3D_v2) F(cuMemcpyAsync) F(cuMemcpyAtoA_v2) F(cuMemcpyAtoD_v2) \
	F(cuMemcpyAtoHAsync_v2) F(cuMemcpyAtoH_v2) F(cuMemcpyDtoA_v2) F(cuMemcpyDtoDAsync_v2) F(cuMemcpyDtoD_v2) F(cuMemcpyDtoHAsync_v2) \
	F(cuMemcpyDtoH_v2) F(cuMemcpyHtoAAsync_v2) F(cuMemcpyHtoA_v2) F(cuMemcpyHtoDAsync_v2) F(cuMemcpyHtoD_v2) F(cuMemcpyPeer) \
	F(cuMemcpyPeerAsync) F(cuMemsetD16Async) F(cuMemsetD16_v2) F(cuMemsetD2D16Async) F(cuMemsetD2D16_v2) F(cuMemsetD2D32Async) \
	F(cuMemsetD2D32_v2) F(cuMemsetD2D8Async) F(cuMemsetD2D8_v2) F(cuMemsetD32Async) F(cuMemsetD32_v2) F(cuMemsetD8Async) \
	F(cuMemsetD8_v2) F(cuModuleGetFunction) F(cuModuleGetGlobal_v2) F(cuModuleGetSurfRef) F(cuModuleGetTexRef) F(cuModuleLoad) \
	F(cuModuleLoadData) F(cuModuleLoadDataEx) F(cuModuleLoadFatBinary) F(cuModuleUnload) \
	F(cuOccupancyMaxActiveBlocksPerMultiprocessor) F(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) F(cuPointerGetAttribute) \
	F(cuPointerSetAttribute) F(cuStreamAttachMemAsync) F(cuStreamBeginCapture_v2) F(cuStreamCreate) F(cuStreamCreateWithPriority) \
	F(cuStreamDestroy_v2) F(cuStreamEndCapture) F(cuStreamGetFlags) F(cuStreamGetPriority) F(cuStreamQuery) F(cuStreamSynchronize) \
	F(cuStreamWaitEvent) F(cuStreamWaitValue32) F(cuStreamWaitValue32_v2) F(cuStreamWriteValue32) F(cuStreamWriteValue32_v2) \
	F(cuSurfRefGetArray) F(cuSurfRefSetArray) F(cuTexRefGetAddressMode) F(cuTexRefGetAddress_v2) F(cuTexRefGetArray) \
	F(cuTexRefGetBorderColor) F(cuTexRefGetFilterMode) F(cuTexRefGetFlags) F(cuTexRefGetFormat) F(cuTexRefGetMaxAnisotropy) \
	F(cuTexRefSetAddress2D_v3) F(cuTexRefSetAddressMode) F(cuTexRefSetAddress_v2) F(cuTexRefSetArray) F(cuTexRefSetBorderColor) \
	F(cuTexRefSetFilterMode) F(cuTexRefSetFlags) F(cuTexRefSetFormat) F(cuTexRefSetMaxAnisotropy) F(cuTexRefSetMipmapFilterMode) \
	F(cuTexRefSetMipmapLevelBias) F(cuTexRefSetMipmapLevelClamp) F(cuTensorMapEncodeTiled)
