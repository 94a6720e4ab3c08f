//go:build ignore

#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { GPUS = 2, NULLS = -1 };

// What a test may set, by name.
static struct {
	long memory;  // bytes of each GPU
	long devices; // how many GPUs there are
	long init;    // what cuInit says
	long fault;   // what the next kernel that runs fails with
	long refuse;  // what the next launch is refused with
	long null;    // launches do nothing, at once
	long old;     // the driver is of CUDA 12.0: it cannot tell a kernel's parameters
	long peers;   // the GPUs can access one another
} set = {.memory = 1L << 30, .devices = GPUS};

typedef struct { int users; long used; int sticky, opened; } gpu; // opened: the others, by bits
typedef struct block { struct block *next; piece m; int fd, gpu, opens, foreign; char key[32]; } block;
// A graph is operations in the order of their recording, numbered, of which each comes after some others. Ends are the numbers of what comes last, by bits.
enum { MOST_OPS = 4096 };
typedef struct { uint64_t is[MOST_OPS / 64]; } ends;
typedef struct { op *o; ends after; } node;
typedef struct graph { unsigned long id; node **nodes; int count, failed, busy; unsigned long launched; } graph;
typedef struct pin { struct pin *next; char *p; size_t n; } pin;
typedef struct { pthread_cond_t c; unsigned long asked, done; struct timespec at; unsigned long in; ends ends; } event;
typedef struct { uint64_t id; char *image; } module;
typedef struct { uint64_t id, module; int64_t params, threads, static_shared, most_shared; uint64_t at[MOST_PARAMS], n[MOST_PARAMS]; } function;
struct stream { stream *next; int gpu, stop, busy; pthread_t thread; op *first, **last; graph *capture; int owns; ends ends; };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; // a stream has come further, or has more to do
static gpu gpus[GPUS];
static block *blocks;
static pin *pins;
static stream *streams;
static int ready, made;
static unsigned long captures;
static uint64_t next_at = 0x300000000000;
static int (*ask)(question *);
static __thread gpu *current;

void lock(void) { pthread_mutex_lock(&mu); }
void unlock(void) { pthread_mutex_unlock(&mu); }
void weft_fake_answer(void *f) { ask = f; }

int weft_fake_set(const char *what, long value) {
#define FIELD(name) \
	if (!strcmp(what, #name)) { \
		set.name = value; \
		return 0; \
	}
	FIELD(memory) FIELD(devices) FIELD(init) FIELD(fault) FIELD(refuse) FIELD(null) FIELD(old) FIELD(peers)
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
#define ENTER \
	int wrong = entered(); \
	if (wrong) return wrong

static block *find(uint64_t at, uint64_t n) {
	for (block *b = blocks; b; b = b->next)
		if (at >= b->m.at && at - b->m.at <= b->m.n && n <= b->m.n - (at - b->m.at)) return b;
	return NULL;
}
char *host(uint64_t at, uint64_t n) {
	block *b = find(at, n);
	return b ? b->m.host + (at - b->m.at) : NULL;
}

// Devices and contexts.

int cuInit(unsigned flags) {
	const char *e = getenv("WEFT_FAKE_INIT");
	if (e) set.init = atoi(e);
	if (!set.init) ready = 1;
	return set.init;
}
int cuDriverGetVersion(int *v) { return *v = set.old ? 12000 : 13000, OK; }
int cuDeviceGetCount(int *n) { return *n = set.devices, OK; }
int cuDeviceGet(int *d, int k) { return *d = k, k < 0 || k >= set.devices ? BAD_DEVICE : OK; }
int cuDeviceGetName(char *s, int n, int d) { return snprintf(s, n, "fake GPU %d", d), OK; }
int cuDeviceGetUuid(char *b, int d) { return memset(b, 7, 16), OK; } // of the whole GPU: all that MIG makes of one have the same
int cuDeviceGetUuid_v2(char *b, int d) { return memset(b, 7, 16), b[15] = d, OK; }
int cuDeviceTotalMem_v2(size_t *n, int d) { return *n = set.memory, OK; }
int cuDeviceGetAttribute(int *v, int a, int d) {
	switch (a) {
	case 75: return *v = 9, OK;      // major
	case 76: return *v = 0, OK;      // minor
	case 16: return *v = 4, OK;      // multiprocessors
	case 97: return *v = 232448, OK; // shared memory of a block
	}
	return INVALID;
}
int cuDevicePrimaryCtxRetain(void **c, int d) { return *c = &gpus[d], gpus[d].users++, OK; }
int cuDevicePrimaryCtxRelease_v2(int d) {
	if (!gpus[d].users) return BAD_CONTEXT;
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

// Streams: each is a thread that takes one operation after another.

static int happen(op *);

static void *serve(void *arg) {
	stream *s = arg;
	lock();
	for (;;) {
		while (!s->first && !s->stop) pthread_cond_wait(&changed, &mu);
		if (!s->first) break;
		op *o = s->first;
		s->busy = 1;
		int r = gpus[s->gpu].sticky && o->run != happen ? OK : o->run(o); // nothing is done on a lost GPU, but who waits goes on
		if (r && !gpus[s->gpu].sticky) gpus[s->gpu].sticky = r;
		s->first = o->next;
		if (!s->first) s->last = &s->first;
		s->busy = 0;
		free(o->more);
		free(o);
		pthread_cond_broadcast(&changed);
	}
	unlock();
	return NULL;
}

static op *copied(const op *o) {
	op *c = malloc(sizeof *c);
	*c = *o;
	c->next = NULL;
	if (o->more) memcpy(c->more = malloc(o->more_len + 1), o->more, o->more_len);
	return c;
}

static void put(stream *s, const op *o) {
	*s->last = copied(o);
	s->last = &(*s->last)->next;
}

static void append(stream *s, const op *o) {
	graph *g = s->capture;
	if (!g) return put(s, o);
	if (g->count == MOST_OPS) abort(); // more than tests need
	node *n = calloc(1, sizeof *n);
	*n = (node){copied(o), s->ends};
	g->nodes = realloc(g->nodes, (g->count + 1) * sizeof *g->nodes);
	memset(&s->ends, 0, sizeof s->ends);
	s->ends.is[g->count / 64] |= 1ul << g->count % 64;
	g->nodes[g->count++] = n;
}

int submit(stream *s, op o) {
	if (!s) return BAD_HANDLE; // the default stream is not for us
	lock();
	if (&gpus[s->gpu] != current) return unlock(), BAD_HANDLE;
	append(s, &o);
	pthread_cond_broadcast(&changed);
	unlock();
	return OK;
}

static void drain(stream *s) {
	while (s->first) pthread_cond_wait(&changed, &mu);
}
static void drain_all(int g) {
	for (stream *s = streams; s; s = s ? s->next : streams)
		if (s->gpu == g && s->first) {
			drain(s);
			s = NULL; // the list may have changed
		}
}

int cuStreamCreate(stream **out, unsigned flags) {
	ENTER;
	if (flags != 1) return INVALID;
	stream *s = calloc(1, sizeof *s);
	s->last = &s->first, s->gpu = current - gpus;
	lock();
	s->next = streams, streams = s;
	unlock();
	pthread_create(&s->thread, NULL, serve, s);
	return *out = s, OK;
}
int cuStreamDestroy_v2(stream *s) {
	lock();
	drain(s);
	for (stream **p = &streams; *p; p = &(*p)->next)
		if (*p == s) {
			*p = s->next;
			break;
		}
	s->stop = 1;
	pthread_cond_broadcast(&changed);
	unlock();
	pthread_join(s->thread, NULL);
	free(s);
	return entered();
}
int cuStreamSynchronize(stream *s) {
	ENTER;
	lock();
	if (s->capture) return s->capture->failed = INVALIDATED_CAPTURE, unlock(), UNSUPPORTED_CAPTURE;
	drain(s);
	unlock();
	return current->sticky;
}

// Graphs.

int cuStreamBeginCapture_v2(stream *s, int mode) {
	ENTER;
	lock();
	int r = mode == 2 && !s->capture ? OK : INVALID;
	if (!r) {
		s->capture = calloc(1, sizeof(graph));
		s->capture->id = ++captures, s->owns = 1;
		memset(&s->ends, 0, sizeof s->ends);
	}
	unlock();
	return r;
}
static void free_graph(graph *g) {
	for (int k = 0; k < g->count; k++) free(g->nodes[k]->o->more), free(g->nodes[k]->o), free(g->nodes[k]);
	free(g->nodes);
	free(g);
}
static int has(const ends *e, int k) { return e->is[k / 64] >> k % 64 & 1; }
static void unite(ends *e, const ends *more) {
	for (int k = 0; k < MOST_OPS / 64; k++) e->is[k] |= more->is[k];
}
// joined says whether all of a graph comes before some ends.
static int joined(const graph *g, ends e) {
	for (int k = g->count - 1; k >= 0; k--) {
		if (!has(&e, k)) return 0;
		unite(&e, &g->nodes[k]->after);
	}
	return 1;
}
int cuStreamEndCapture(stream *s, graph **out) {
	ENTER;
	lock();
	graph *g = s->capture;
	if (!g || !s->owns) return unlock(), UNMATCHED_CAPTURE;
	if (!g->failed && !joined(g, s->ends)) g->failed = UNJOINED_CAPTURE;
	for (stream *x = streams; x; x = x->next)
		if (x->capture == g) x->capture = NULL, x->owns = 0;
	unlock();
	*out = NULL;
	if (g->failed) {
		int r = g->failed;
		free_graph(g);
		return r;
	}
	return *out = g, OK;
}
int cuGraphInstantiateWithFlags(graph **out, graph *g, unsigned long long flags) {
	ENTER;
	graph *e = calloc(1, sizeof *e);
	e->nodes = calloc(g->count + 1, sizeof *e->nodes), e->count = g->count;
	for (int k = 0; k < g->count; k++) e->nodes[k] = malloc(sizeof(node)), *e->nodes[k] = (node){copied(g->nodes[k]->o), g->nodes[k]->after};
	return *out = e, OK;
}
int cuGraphDestroy(graph *g) { return free_graph(g), OK; }
int cuGraphExecDestroy(graph *g) { return free_graph(g), entered(); }

// spread submits a graph's operations in an order that its dependencies allow: the order of the recording, and every other time one in which what was
// recorded later comes first wherever it may.
static void spread(graph *g, stream *s) {
	int backwards = g->launched++ % 2 == 0;
	ends done = {0};
	for (int n = 0; n < g->count; n++)
		for (int i = 0; i < g->count; i++) {
			int k = backwards ? g->count - 1 - i : i, may = !has(&done, k);
			for (int w = 0; w < MOST_OPS / 64 && may; w++) may = !(g->nodes[k]->after.is[w] & ~done.is[w]);
			if (!may) continue;
			done.is[k / 64] |= 1ul << k % 64;
			put(s, g->nodes[k]->o);
			break;
		}
}
int cuGraphLaunch(graph *g, stream *s) {
	ENTER;
	if (s->capture) return NOT_SUPPORTED; // a graph in a graph is not for us
	if (__atomic_exchange_n(&g->busy, 1, __ATOMIC_ACQUIRE)) return BAD_STATE; // the driver does not guard graphs: two threads at once would harm it
	sched_yield(); // so that they meet
	lock();
	spread(g, s);
	pthread_cond_broadcast(&changed);
	unlock();
	__atomic_store_n(&g->busy, 0, __ATOMIC_RELEASE);
	return OK;
}

// Events.

static int happen(op *o) {
	event *e = o->p;
	clock_gettime(CLOCK_MONOTONIC, &e->at);
	if (o->generation > e->done) e->done = o->generation;
	return OK;
}
static int await(op *o) {
	event *e = o->p;
	while (e->done < o->generation) pthread_cond_wait(&changed, &mu);
	return OK;
}
int cuEventCreate(event **e, unsigned flags) {
	ENTER;
	return *e = calloc(1, sizeof **e), OK;
}
int cuEventDestroy_v2(event *e) { return entered(); } // it may be waited for: left as it is
int cuEventRecord(event *e, stream *s) {
	ENTER;
	lock();
	e->in = s->capture ? s->capture->id : 0, e->ends = s->ends;
	if (!s->capture) put(s, &(op){.run = happen, .p = e, .generation = ++e->asked});
	pthread_cond_broadcast(&changed);
	unlock();
	return OK;
}
// recording is the capture of a number, as long as it goes on.
static graph *recording(unsigned long id) {
	for (stream *s = streams; s; s = s->next)
		if (s->capture && s->capture->id == id) return s->capture;
	return NULL;
}
static int wait(stream *s, event *e) {
	if (!e->in) {
		if (!s->capture) return put(s, &(op){.run = await, .p = e, .generation = e->asked}), OK;
		if (!e->asked) return OK;
		return s->capture->failed = INVALIDATED_CAPTURE, ISOLATED_CAPTURE; // what is recorded waits for nothing outside
	}
	graph *g = recording(e->in);
	if (!g) return CAPTURED_EVENT;
	if (s->capture && s->capture != g) return g->failed = s->capture->failed = INVALIDATED_CAPTURE, MERGED_CAPTURE;
	if (!s->capture) s->capture = g, memset(&s->ends, 0, sizeof s->ends); // the stream is recorded, too
	unite(&s->ends, &e->ends);
	return OK;
}
int cuStreamWaitEvent(stream *s, event *e, unsigned flags) {
	ENTER;
	lock();
	int r = wait(s, e);
	pthread_cond_broadcast(&changed);
	unlock();
	return r;
}
int cuEventSynchronize(event *e) {
	ENTER;
	lock();
	if (e->in) { // it never happens
		graph *g = recording(e->in);
		if (g) g->failed = INVALIDATED_CAPTURE;
		return unlock(), CAPTURED_EVENT;
	}
	while (e->done < e->asked) pthread_cond_wait(&changed, &mu);
	unlock();
	return current->sticky;
}
int cuEventElapsedTime(float *ms, event *a, event *b) {
	ENTER;
	if (a->in || b->in) return CAPTURED_EVENT;
	if (!a->asked || !b->asked) return BAD_HANDLE;
	if (a->done < a->asked || b->done < b->asked) return NOT_READY;
	return *ms = (b->at.tv_sec - a->at.tv_sec) * 1e3 + (b->at.tv_nsec - a->at.tv_nsec) / 1e6, OK;
}
int cuEventElapsedTime_v2(float *ms, event *a, event *b) { return cuEventElapsedTime(ms, a, b); }

// Memory: each allocation is a file without a name, which other processes open by way of /proc.

static block *keep(int fd, uint64_t n, int foreign) {
	size_t whole = (n + 4095) & ~4095ul;
	char *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) return NULL;
	block *b = calloc(1, sizeof *b);
	b->m = (piece){next_at, n, p}, b->fd = fd, b->gpu = current - gpus, b->foreign = foreign, b->opens = 1;
	next_at += whole + (1 << 20); // a gap, which belongs to nobody
	b->next = blocks, blocks = b;
	return b;
}
int cuMemAlloc_v2(uint64_t *at, size_t n) {
	ENTER;
	if (!n) return INVALID;
	lock();
	int r = NO_MEMORY, fd;
	if (current->used + (long)n <= set.memory && (fd = memfd_create("weft-fake-gpu", MFD_CLOEXEC)) >= 0) {
		block *b = ftruncate(fd, (n + 4095) & ~4095ul) ? NULL : keep(fd, n, 0);
		if (b) {
			memset(b->m.host, 0xff, n); // not a number, as a float
			snprintf(b->key, sizeof b->key, "%d", ++made);
			current->used += n, *at = b->m.at, r = OK;
		} else close(fd);
	}
	unlock();
	return r;
}
static int discard(uint64_t at, int foreign) {
	for (block **p = &blocks; *p; p = &(*p)->next) {
		block *b = *p;
		if (b->m.at != at || b->foreign != foreign) continue;
		if (--b->opens) return OK;
		*p = b->next;
		if (!foreign) gpus[b->gpu].used -= b->m.n;
		munmap(b->m.host, (b->m.n + 4095) & ~4095ul);
		close(b->fd);
		free(b);
		return OK;
	}
	return INVALID;
}
int cuMemFree_v2(uint64_t at) {
	ENTER;
	lock();
	drain_all(current - gpus);
	int r = discard(at, 0);
	unlock();
	return r ? r : current->sticky;
}
int cuMemGetInfo_v2(size_t *room, size_t *all) {
	ENTER;
	return *all = set.memory, *room = set.memory - current->used, OK;
}
int cuMemGetAddressRange_v2(uint64_t *base, size_t *n, uint64_t at) {
	ENTER;
	lock();
	block *b = find(at, 1);
	if (b) {
		if (base) *base = b->m.at;
		if (n) *n = b->m.n;
	}
	unlock();
	return b ? OK : NOT_FOUND;
}

typedef struct { char raw[64]; } handle;
typedef struct { int pid, fd; uint64_t n; char key[32]; } name;
int cuIpcGetMemHandle(handle *h, uint64_t at) {
	ENTER;
	lock();
	block *b = find(at, 1);
	name x = {getpid(), b ? b->fd : -1, b ? b->m.n : 0};
	if (b) memcpy(x.key, b->key, sizeof x.key);
	unlock();
	memset(h, 0, sizeof *h);
	memcpy(h, &x, sizeof x);
	return b && !b->foreign ? OK : INVALID;
}
int cuIpcOpenMemHandle_v2(uint64_t *at, handle h, unsigned flags) {
	ENTER;
	name x;
	memcpy(&x, &h, sizeof x);
	if (x.pid == getpid()) return BAD_CONTEXT;
	char path[64], key[32];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", x.pid, x.fd);
	snprintf(key, sizeof key, "%d/%.16s", x.pid, x.key);
	lock();
	for (block *b = blocks; b; b = b->next)
		if (b->foreign && !strcmp(b->key, key)) return b->opens++, *at = b->m.at, unlock(), OK;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;
	block *b = fd >= 0 && !fstat(fd, &st) && x.n && (uint64_t)st.st_size >= x.n ? keep(fd, x.n, 1) : NULL;
	if (b) strcpy(b->key, key), *at = b->m.at;
	else if (fd >= 0) close(fd);
	unlock();
	return b ? OK : INVALID;
}
int cuIpcCloseMemHandle(uint64_t at) {
	ENTER;
	lock();
	drain_all(current - gpus);
	int r = discard(at, 1);
	unlock();
	return r;
}

int cuMemHostAlloc(void **out, size_t n, unsigned flags) {
	ENTER;
	pin *p = calloc(1, sizeof *p);
	p->n = n, p->p = aligned_alloc(4096, (n + 4095) & ~4095ul);
	memset(p->p, 0xff, n);
	lock();
	p->next = pins, pins = p;
	unlock();
	return *out = p->p, OK;
}
int cuMemFreeHost(void *at) {
	ENTER;
	lock();
	drain_all(current - gpus);
	int r = INVALID;
	for (pin **p = &pins; *p; p = &(*p)->next)
		if ((*p)->p == at) {
			pin *q = *p;
			*p = q->next, r = OK;
			free(q->p), free(q);
			break;
		}
	unlock();
	return r;
}
static int pinned(const void *at, size_t n) {
	for (pin *p = pins; p; p = p->next)
		if ((char *)at >= p->p && (char *)at + n <= p->p + p->n) return 1;
	return 0;
}

// Copies. Addresses are checked when they are asked for, and again when it is done.

static int do_in(op *o) {
	char *to = host(o->a, o->n);
	return to ? memcpy(to, o->p, o->n), OK : ILLEGAL_ADDRESS;
}
static int do_out(op *o) {
	char *from = host(o->a, o->n);
	return from ? memcpy(o->p, from, o->n), OK : ILLEGAL_ADDRESS;
}
static int do_copy(op *o) {
	char *to = host(o->a, o->n), *from = host(o->b, o->n);
	return to && from ? memmove(to, from, o->n), OK : ILLEGAL_ADDRESS;
}
static int do_set(op *o) {
	char *to = host(o->a, o->n);
	return to ? memset(to, (int)o->b, o->n), OK : ILLEGAL_ADDRESS;
}
static int there(uint64_t at, const void *p, size_t n) {
	lock();
	int ok = (!at || host(at, n)) && (!p || pinned(p, n));
	unlock();
	return ok;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, stream *s) {
	ENTER;
	return there(to, from, n) ? submit(s, (op){.run = do_in, .a = to, .p = (void *)from, .n = n}) : INVALID;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, stream *s) {
	ENTER;
	return there(from, to, n) ? submit(s, (op){.run = do_out, .a = from, .p = to, .n = n}) : INVALID;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, stream *s) {
	ENTER;
	return there(to, NULL, n) && there(from, NULL, n) ? submit(s, (op){.run = do_copy, .a = to, .b = from, .n = n}) : INVALID;
}
static int of(gpu *c, uint64_t at, size_t n) {
	lock();
	block *b = find(at, n);
	unlock();
	return b && &gpus[b->gpu] == c;
}
int cuMemcpyPeerAsync(uint64_t to, gpu *there, uint64_t from, gpu *here, size_t n, stream *s) {
	ENTER;
	if (here != current || here == there || !(here->opened & 1 << (there - gpus)) || !of(there, to, n) || !of(here, from, n)) return INVALID; // slower ways are not for us
	return submit(s, (op){.run = do_copy, .a = to, .b = from, .n = n});
}
int cuMemsetD8Async(uint64_t to, unsigned char v, size_t n, stream *s) {
	ENTER;
	return there(to, NULL, n) ? submit(s, (op){.run = do_set, .a = to, .b = v, .n = n}) : INVALID;
}

// Kernels.

static int asked(question *q) {
	if (ask) return ask(q);
	if (q->what == FIND) {
		q->params = -1, q->threads = 1024, q->id = 1;
		char entry[256];
		snprintf(entry, sizeof entry, ".entry %s(", q->name);
		return strstr(q->image, entry) ? OK : NOT_FOUND;
	}
	return OK;
}
int cuModuleLoadDataEx(module **out, const char *image, unsigned n, const int *options, void **values) {
	ENTER;
	question *q = calloc(1, sizeof *q);
	q->what = LOAD, q->image = image, q->len = strlen(image);
	if (!*image) abort(); // nobody knows what a driver does
	int r = strstr(image, ".version 99.") ? NO_PTX_VERSION : strstr(image, ".version") ? asked(q) : (strcpy(q->log, "no .version directive"), BAD_IMAGE);
	for (unsigned i = 0; i + 1 < n; i++)
		if (options[i] == 5 && options[i + 1] == 6) snprintf(values[i], (size_t)values[i + 1], "%s", q->log);
	if (!r) {
		module *m = calloc(1, sizeof *m);
		m->id = q->id, m->image = strdup(image);
		*out = m;
	}
	free(q);
	return r;
}
int cuModuleUnload(module *m) {
	ENTER;
	question *q = calloc(1, sizeof *q);
	q->what = UNLOAD, q->module = m->id;
	asked(q);
	free(q);
	free(m->image);
	free(m);
	return OK;
}
int cuModuleGetFunction(function **out, module *m, const char *name) {
	ENTER;
	question *q = calloc(1, sizeof *q);
	q->what = FIND, q->module = m->id, q->name = name, q->image = m->image;
	int r = asked(q);
	if (!r) {
		function *f = calloc(1, sizeof *f);
		*f = (function){q->id, m->id, q->params, q->threads, q->static_shared, 48 << 10};
		memcpy(f->at, q->param_at, sizeof f->at), memcpy(f->n, q->param_n, sizeof f->n);
		*out = f;
	}
	free(q);
	return r;
}
int cuFuncGetAttribute(int *v, int a, function *f) {
	ENTER;
	if (a > 1) return INVALID;
	return *v = a ? f->static_shared : f->threads, OK;
}
int cuFuncSetAttribute(function *f, int a, int v) {
	ENTER;
	if (a != 8 || v < 0 || v + f->static_shared > 232448) return INVALID;
	return f->most_shared = v, OK;
}
int cuFuncGetParamInfo(function *f, size_t k, size_t *at, size_t *n) {
	ENTER;
	if (set.old || f->params < 0) return NOT_FOUND;
	if (k >= (size_t)f->params) return INVALID;
	return *at = f->at[k], *n = f->n[k], OK;
}

static int do_kernel(op *o) {
	question *q = (question *)o->more;
	piece *all = NULL;
	if (set.fault) {
		int r = set.fault;
		return set.fault = 0, r;
	}
	for (block *b = blocks; b; b = b->next) {
		all = realloc(all, (q->pieces + 1) * sizeof *all);
		all[q->pieces++] = b->m;
	}
	q->memory = all, q->args = o->more + sizeof *q;
	unlock();
	int r = asked(q);
	free(all);
	q->pieces = 0; // a graph runs it again
	lock();
	return r;
}
int cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, stream *s, void **params,
	void **extra) {
	ENTER;
	if (set.refuse) {
		int r = set.refuse;
		return set.refuse = 0, r;
	}
	if (params || !gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > f->threads || shared > f->most_shared) return INVALID;
	size_t len = 0;
	const char *args = NULL;
	for (void **x = extra; x && *x; x += 2) {
		if (*x == (void *)1) args = x[1];
		else if (*x == (void *)2) len = *(size_t *)x[1];
		else return INVALID;
	}
	if (f->params >= 0 && len != (f->params ? f->at[f->params - 1] + f->n[f->params - 1] : 0)) return INVALID;
	if (set.null) return OK;
	char *more = calloc(1, sizeof(question) + len + 1);
	question *q = (question *)more;
	q->what = RUN, q->module = f->module, q->kernel = f->id, q->args_len = len, q->shared = shared;
	memcpy(q->grid, (uint32_t[]){gx, gy, gz}, 12), memcpy(q->block, (uint32_t[]){bx, by, bz}, 12);
	if (len) memcpy(more + sizeof *q, args, len);
	int r = submit(s, (op){.run = do_kernel, .more = more, .more_len = sizeof *q + len});
	free(more);
	return r;
}
