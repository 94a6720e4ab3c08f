//go:build ignore

// What a test may set, devices and contexts.
#include "driver.h"

settings set = {.memory = 1L << 30, .devices = GPUS, .arch = 90};
gpu gpus[GPUS];
__thread gpu *current;
pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static int ready;
static long queues = 8, uncached;

void lock(void) { pthread_mutex_lock(&mu); }
void unlock(void) { pthread_mutex_unlock(&mu); }

int weft_fake_set(const char *what, long value) {
#define FIELD(name) \
	if (!strcmp(what, #name)) { \
		set.name = value; \
		return 0; \
	}
	FIELD(memory) FIELD(devices) FIELD(init) FIELD(fault) FIELD(refuse) FIELD(null) FIELD(old) FIELD(peers) FIELD(arch) FIELD(unmapped)
	return -1;
}

// weft_fake_mend forgets faults, as a new process would.
void weft_fake_mend(void) {
	for (int i = 0; i < GPUS; i++) gpus[i].sticky = 0;
}

// weft_fake_live is how many allocations, pinned pieces and streams there are.
long weft_fake_live(void) {
	long n = 0;
	lock();
	for (block *b = blocks; b; b = b->next) n++;
	for (pin *p = pins; p; p = p->next) n++;
	for (stream *s = streams; s; s = s->next) n++;
	unlock();
	return n;
}

int entered(void) {
	if (!ready) return NOT_INITIALIZED;
	if (!current || !current->users) return BAD_CONTEXT;
	return current->sticky;
}

int cuInit(unsigned flags) {
	const char *e = getenv("WEFT_FAKE_INIT");
	if (e) set.init = atoi(e);
	if (!set.init) ready = 1;
	if ((e = getenv("CUDA_DEVICE_MAX_CONNECTIONS"))) queues = atol(e);
	if ((e = getenv("CUDA_CACHE_DISABLE"))) uncached = atol(e);
	return set.init;
}
// weft_fake_uncached says that the driver was told to keep nothing of what it compiles.
long weft_fake_uncached(void) { return uncached; }
// weft_fake_queues is from how many queues a GPU takes work.
long weft_fake_queues(void) { return queues; }
int cuDriverGetVersion(int *v) { return *v = set.old ? 12000 : 13000, OK; }
int cuDeviceGetCount(int *n) { return *n = set.devices, OK; }
int cuDeviceGet(int *d, int k) { return *d = k, k < 0 || k >= set.devices ? BAD_DEVICE : OK; }
int cuDeviceGetName(char *s, int n, int d) { return snprintf(s, n, "fake GPU %d", d), OK; }
int cuDeviceGetUuid(char *b, int d) { return memset(b, 7, 16), OK; } // of the whole GPU: all that MIG makes of one have the same
int cuDeviceGetUuid_v2(char *b, int d) { return memset(b, 7, 16), b[15] = d, OK; }
int cuDeviceTotalMem_v2(size_t *n, int d) { return *n = set.memory, OK; }
int cuDeviceGetAttribute(int *v, int a, int d) {
	switch (a) {
	case 75: return *v = set.arch / 10, OK; // major
	case 76: return *v = set.arch % 10, OK; // minor
	case 16: return *v = 4, OK;             // multiprocessors
	case 97: return *v = 232448, OK;        // shared memory of a block
	}
	return INVALID;
}
int cuDevicePrimaryCtxRetain(void **c, int d) { return *c = &gpus[d], gpus[d].users++, count(CONTEXTS, 1), OK; }
int cuDevicePrimaryCtxRelease_v2(int d) {
	if (!gpus[d].users) return BAD_CONTEXT;
	count(CONTEXTS, -1);
	if (!--gpus[d].users)
		for (int i = 0; i < GPUS; i++) gpus[i].opened &= ~(1 << d), gpus[d].opened = 0;
	return gpus[d].sticky; // it is released
}
int cuCtxSetCurrent(void *c) { return current = c, !current || current->users ? OK : BAD_CONTEXT; }
int cuDeviceCanAccessPeer(int *can, int d, int other) { return *can = set.peers && d != other, OK; }
int cuCtxEnablePeerAccess(gpu *to, unsigned flags) {
	ENTER;
	if (flags || !to->users || to == current) return INVALID;
	if (!set.peers) return NO_PEER;
	int bit = 1 << (to - gpus);
	if (current->opened & bit) return PEER_ALREADY;
	return current->opened |= bit, OK;
}
int cuGetErrorName(int e, const char **s) { return *s = "FAKE", OK; }
int cuGetErrorString(int e, const char **s) { return *s = "as the fake driver says", OK; }
