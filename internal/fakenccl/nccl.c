//go:build ignore

// An NCCL whose GPUs are queues in this process.

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef VERSION
#define VERSION 23007
#endif

enum { OK, CUDA, SYSTEM, INTERNAL, ARGUMENT, USAGE, REMOTE, BUSY };
enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };
enum { RANKS = 16, GPUS = 16, WORLDS = 4096, ITEMS = 1 << 16, CALLS = 32, SCALES = 8 };

typedef struct { char bytes[128]; } id128;
typedef struct { uint64_t size; uint32_t magic, version; int32_t rest[26]; } config;
typedef struct comm comm;
typedef struct {
	id128 id;
	int size, joined, serial, asked;
	comm *ranks[RANKS];
} world;
struct comm {
	world *w;
	int rank, gpu, dead, aborted, finalized, waits, color, key;
	comm **child; // where a derived one is to be written
	double scales[SCALES];
	int scaled;
};
typedef struct { int kind, type, op, root, peer, done; const char *from; char *to; size_t count; } call;
typedef struct { comm *c; int n; call calls[CALLS]; } item;

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static world *worlds[WORLDS];
static int serials;
static struct { item *items[ITEMS]; int head, tail; } gpus[GPUS];
static int64_t records[ITEMS][8];
static int recorded, misuses, mends, registered;
static config seen;
static char last[256];
static __thread int current, depth;
static __thread struct { comm *c; void *stream; int n; call calls[CALLS]; } group;

// What a test has planted: functions that, on a rank or on all (-1), hang or have a result.
static struct { char function[64]; int rank, hangs, code; } plans[4];
static int planned;
static struct { const char *function; int64_t n; } counts[64];

static void count(const char *function) {
	int k = 0;
	while (counts[k].function && strcmp(counts[k].function, function)) k++;
	counts[k].function = function, counts[k].n++;
}

// met is called with the lock held; it gives what is planted. A hanging call returns when its communicator is aborted, or the plan is taken away.
static int met(const char *function, comm *c, int rank) {
	count(function);
	if (c && c->dead) return misuses++, INTERNAL;
	for (int k = 0; k < planned; k++) {
		if (strcmp(plans[k].function, function) || (plans[k].rank >= 0 && plans[k].rank != rank)) continue;
		if (!plans[k].hangs) return plans[k].code;
		for (int was = mends; mends == was && !(c && c->aborted && strcmp(function, "ncclCommAbort"));) pthread_cond_wait(&changed, &mu);
		return SYSTEM;
	}
	return OK;
}

#define MEET(c) MEET_AS(c, (c)->rank)
#define MEET_AS(c, rank) \
	pthread_mutex_lock(&mu); \
	int r = met(__func__, c, rank); \
	if (r) return done(r)
static int done(int r) {
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
	return r;
}

// Tests' own functions.

void weft_fake_current(int gpu) { current = gpu; }
int weft_fake_plant(const char *function, int rank, int hangs, int code) {
	pthread_mutex_lock(&mu);
	if (planned == 4) return done(INTERNAL);
	snprintf(plans[planned].function, sizeof plans->function, "%s", function);
	plans[planned].rank = rank, plans[planned].hangs = hangs, plans[planned].code = code;
	planned++;
	return done(OK);
}
void weft_fake_mend(void) {
	pthread_mutex_lock(&mu);
	planned = 0, mends++;
	done(OK);
}
int64_t weft_fake_calls(const char *function) {
	pthread_mutex_lock(&mu);
	int64_t n = 0;
	for (int k = 0; counts[k].function; k++)
		if (!strcmp(counts[k].function, function)) n = counts[k].n;
	done(OK);
	return n;
}
int64_t weft_fake_pending(void) {
	pthread_mutex_lock(&mu);
	int64_t n = 0;
	for (int g = 0; g < GPUS; g++) n += gpus[g].tail - gpus[g].head;
	done(OK);
	return n;
}
int weft_fake_record(int k, int64_t *out) {
	pthread_mutex_lock(&mu);
	if (k < recorded) memcpy(out, records[k], sizeof records[k]);
	int has = k < recorded;
	done(OK);
	return has;
}
int weft_fake_misuses(void) { return misuses; }
int weft_fake_registered(void) { return registered; }
void weft_fake_config(int64_t *out) {
	out[0] = seen.size, out[1] = seen.magic, out[2] = seen.version;
	for (int k = 0; k < 26; k++) out[3 + k] = seen.rest[k];
}

// Arithmetic, which is in double.

static size_t size_of(int type) { return (const size_t[]){1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}[type]; }
static double get(int type, const char *at, size_t i) {
	switch (type) {
	case 0: return ((const int8_t *)at)[i];
	case 1: return ((const uint8_t *)at)[i];
	case 2: return ((const int32_t *)at)[i];
	case 3: return ((const uint32_t *)at)[i];
	case 4: return ((const int64_t *)at)[i];
	case 5: return ((const uint64_t *)at)[i];
	case 7: return ((const float *)at)[i];
	case 8: return ((const double *)at)[i];
	}
	return 0;
}
static void put(int type, char *at, size_t i, double x) {
	switch (type) {
	case 0: ((int8_t *)at)[i] = x; break;
	case 1: ((uint8_t *)at)[i] = x; break;
	case 2: ((int32_t *)at)[i] = x; break;
	case 3: ((uint32_t *)at)[i] = x; break;
	case 4: ((int64_t *)at)[i] = x; break;
	case 5: ((uint64_t *)at)[i] = x; break;
	case 7: ((float *)at)[i] = x; break;
	case 8: ((double *)at)[i] = x; break;
	}
}

// joined is element i of all ranks' inputs in one.
static double joined(world *w, call **of, size_t i) {
	double x = 0;
	for (int r = 0; r < w->size; r++) {
		double y = get(of[r]->type, of[r]->from, i);
		int op = of[r]->op;
		if (op >= 5) y *= w->ranks[r]->scales[op - 5];
		x = !r ? y : op == 1 ? x * y : op == 2 ? (x > y ? x : y) : op == 3 ? (x < y ? x : y) : x + y;
	}
	return of[0]->op == 4 ? x / w->size : x;
}

static void compute(world *w, call **of) {
	size_t n = of[0]->count, bytes = n * size_of(of[0]->type);
	int type = of[0]->type, root = of[0]->root;
	for (int r = 0; r < w->size; r++)
		for (size_t i = 0; i < n && of[0]->kind == REDUCE_SCATTER; i++) put(type, of[r]->to, i, joined(w, of, r * n + i));
	for (size_t i = 0; i < n && (of[0]->kind == ALL_REDUCE || of[0]->kind == REDUCE); i++) {
		double x = joined(w, of, i);
		for (int r = 0; r < w->size; r++)
			if (of[0]->kind == ALL_REDUCE || r == root) put(type, of[r]->to, i, x);
	}
	for (int r = 0; r < w->size && of[0]->kind == BROADCAST; r++) memmove(of[r]->to, of[root]->from, bytes);
	for (int r = 0; r < w->size && of[0]->kind == ALL_GATHER; r++)
		for (int q = 0; q < w->size; q++) memmove(of[q]->to + r * bytes, of[r]->from, bytes);
}

// The queues.

static item *head(comm *c) {
	item *it = c && gpus[c->gpu].head < gpus[c->gpu].tail ? gpus[c->gpu].items[gpus[c->gpu].head] : NULL;
	return it && it->c == c ? it : NULL;
}
static call *next(item *it) { // the first collective operation that is not done
	for (int k = 0; it && k < it->n; k++)
		if (!it->calls[k].done && it->calls[k].kind < SEND) return &it->calls[k];
	return NULL;
}
static int same(call *a, call *b) {
	return a->kind == b->kind && a->type == b->type && a->op == b->op && a->root == b->root && a->count == b->count;
}

static int step(item *it) {
	world *w = it->c->w;
	call *mine = next(it), *of[RANKS];
	int all = mine != NULL;
	for (int r = 0; all && r < w->size; r++) all = (of[r] = next(head(w->ranks[r]))) && same(mine, of[r]);
	if (all) {
		compute(w, of);
		for (int r = 0; r < w->size; r++) of[r]->done = 1;
		return 1;
	}
	for (int k = 0; k < it->n; k++) {
		call *s = &it->calls[k];
		item *peer = s->kind == SEND && !s->done ? head(w->ranks[s->peer]) : NULL;
		for (int j = 0; peer && j < peer->n; j++) {
			call *t = &peer->calls[j];
			if (t->done || t->kind != RECV || t->peer != it->c->rank || t->count != s->count || t->type != s->type) continue;
			memmove(t->to, s->from, s->count * size_of(s->type));
			return s->done = t->done = 1;
		}
	}
	return 0;
}

static void advance(void) {
	for (int moved = 1; moved;) {
		moved = 0;
		for (int g = 0; g < GPUS; g++) {
			if (gpus[g].head == gpus[g].tail) continue;
			item *it = gpus[g].items[gpus[g].head];
			int left = 0;
			for (int k = 0; k < it->n; k++) left += !it->calls[k].done;
			if (!left || it->c->dead) gpus[g].head++, free(it), moved = 1;
			else moved |= step(it);
		}
	}
}

// Streams that are captured keep what is submitted, which is done when it is replayed.
static struct { int gpu, on, n; void *stream; item items[CALLS]; } graphs[GPUS];
static int captured;

static int submit(comm *c, void *stream, int n, const call *calls) {
	for (int k = 0; k < captured; k++)
		if (graphs[k].on && graphs[k].gpu == c->gpu && graphs[k].stream == stream) {
			if (graphs[k].n == CALLS) return INTERNAL;
			item *it = &graphs[k].items[graphs[k].n++];
			it->c = c, it->n = n;
			memcpy(it->calls, calls, n * sizeof *calls);
			return OK;
		}
	item *it = calloc(1, sizeof *it);
	it->c = c, it->n = n;
	memcpy(it->calls, calls, n * sizeof *calls);
	gpus[c->gpu].items[gpus[c->gpu].tail++] = it;
	for (int k = 0; k < n; k++) {
		int64_t *to = records[recorded++];
		to[0] = c->w->serial, to[1] = c->rank, to[2] = c->gpu, to[3] = calls[k].kind, to[4] = calls[k].count, to[5] = calls[k].root;
		to[6] = (int64_t)stream, to[7] = (int64_t)pthread_self();
	}
	advance();
	return OK;
}

static int take(comm *c, void *stream, call x) {
	if (depth) {
		group.c = c, group.stream = stream;
		group.calls[group.n++] = x;
		return OK;
	}
	return submit(c, stream, 1, &x);
}

int weft_fake_capture(int gpu, void *stream) {
	pthread_mutex_lock(&mu);
	if (captured == GPUS) return done(OK), -1;
	graphs[captured].gpu = gpu, graphs[captured].stream = stream, graphs[captured].on = 1;
	int k = captured++;
	done(OK);
	return k;
}
int weft_fake_end(int k) {
	pthread_mutex_lock(&mu);
	graphs[k].on = 0;
	int n = graphs[k].n;
	done(OK);
	return n;
}
void weft_fake_replay(int k) {
	pthread_mutex_lock(&mu);
	for (int i = 0; i < graphs[k].n; i++) submit(graphs[k].items[i].c, graphs[k].stream, graphs[k].items[i].n, graphs[k].items[i].calls);
	done(OK);
}

// Communicators.

static comm *member(world *w, int rank, int gpu) {
	comm *c = calloc(1, sizeof *c);
	c->w = w, c->rank = rank, c->gpu = gpu;
	w->ranks[rank] = c, w->joined++;
	return c;
}
static world *make(int size) {
	world *w = calloc(1, sizeof *w);
	w->size = size, w->serial = serials;
	return worlds[serials++] = w;
}
__attribute__((unused)) static int derived(comm *parent, comm **child, const config *cfg, int color, int key, int need) {
	world *w = parent->w;
	if (cfg) seen = *cfg;
	parent->waits = 1, parent->color = color, parent->key = key, parent->child = child;
	if (++w->asked < need) return BUSY;
	w->asked = 0;
	for (int r = 0; r < w->size; r++) {
		comm *first = w->ranks[r];
		if (!first || !first->waits || first->color < 0) continue;
		int color = first->color, size = 0;
		comm *in[RANKS];
		for (int q = 0; q < w->size; q++) {
			comm *c = w->ranks[q];
			if (!c || !c->waits || c->color != color) continue;
			int k = size++;
			for (; k > 0 && in[k - 1]->key > c->key; k--) in[k] = in[k - 1];
			in[k] = c;
		}
		world *to = make(size);
		for (int k = 0; k < size; k++) *in[k]->child = member(to, k, in[k]->gpu), in[k]->color = -1;
	}
	for (int r = 0; r < w->size; r++)
		if (w->ranks[r]) w->ranks[r]->waits = 0;
	return OK;
}

int ncclGetVersion(int *v) { return *v = VERSION, OK; }
const char *ncclGetErrorString(int r) {
	return r >= 0 && r <= BUSY ? (const char *[]){"no error", "fake cuda error", "fake system error", "fake internal error", "fake invalid argument",
		"fake invalid usage", "fake remote error", "fake in progress"}[r] : "fake unknown error";
}
const char *ncclGetLastError(comm *c) { return last; }
int ncclGetUniqueId(id128 *id) {
	MEET_AS(NULL, -1);
	static int ids;
	memset(id, 0xa5, sizeof *id);
	snprintf(id->bytes, 64, "fake id %d", ++ids);
	id->bytes[127] = 77;
	return done(OK);
}
int ncclCommInitRankConfig(comm **out, int size, id128 id, int rank, config *cfg) {
	MEET_AS(NULL, rank);
	if (cfg->magic != 0xcafebeef || size < 1 || size > RANKS || rank < 0 || rank >= size || id.bytes[127] != 77) return done(ARGUMENT);
	seen = *cfg;
	world *w = NULL;
	for (int k = 0; k < serials; k++)
		if (!memcmp(&worlds[k]->id, &id, sizeof id)) w = worlds[k];
	if (!w) w = make(size), w->id = id;
	for (int q = 0; q < size; q++)
		if (w->ranks[q] && w->ranks[q]->gpu == current) {
			snprintf(last, sizeof last, "Duplicate GPU: ranks %d and %d are on GPU %d", q, rank, current);
			return done(USAGE);
		}
	*out = member(w, rank, current);
	return done(cfg->rest[0] ? OK : BUSY);
}
#if VERSION >= 21800
int ncclCommSplit(comm *c, int color, int key, comm **child, config *cfg) {
	MEET(c);
	return done(derived(c, child, cfg, color, key, c->w->size));
}
#endif
#if VERSION >= 22700
int ncclCommShrink(comm *c, int *without, int n, comm **child, config *cfg, int flags) {
	MEET(c);
	return done(derived(c, child, cfg, 0, c->rank, c->w->size - n));
}
#endif
#if VERSION >= 22809
int ncclCommRevoke(comm *c, int flags) {
	MEET(c);
	c->aborted = 1;
	return done(OK);
}
#endif
int ncclCommAbort(comm *c) {
	MEET(c);
	c->aborted = c->dead = 1;
	advance();
	return done(OK);
}
int ncclCommFinalize(comm *c) {
	MEET(c);
	c->finalized = 1;
	return done(BUSY);
}
int ncclCommDestroy(comm *c) {
	MEET(c);
	c->dead = 1;
	return done(OK);
}
int ncclCommGetAsyncError(comm *c, int *code) {
	pthread_mutex_lock(&mu);
	*code = met(__func__, c, c->rank);
	int busy = c->waits || c->w->joined < c->w->size;
	for (int r = 0; c->finalized && r < c->w->size; r++) busy |= !c->w->ranks[r]->finalized && !c->w->ranks[r]->dead;
	if (!*code && busy) *code = BUSY;
	return done(OK);
}
int ncclCommUserRank(comm *c, int *rank) { return *rank = c->rank, OK; }
int ncclCommCount(comm *c, int *n) { return *n = c->w->size, OK; }
#if VERSION >= 21900
int ncclCommRegister(comm *c, void *at, size_t n, void **handle) {
	MEET(c);
	registered++;
	*handle = at;
	return done(OK);
}
int ncclCommDeregister(comm *c, void *handle) {
	MEET(c);
	registered--;
	return done(OK);
}
int ncclMemAlloc(void **at, size_t n) { return (*at = malloc(n)) ? OK : SYSTEM; }
int ncclMemFree(void *at) { return free(at), OK; }
#endif
int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, comm *c) {
	MEET(c);
	if (residence != 1 || c->scaled == SCALES) return done(ARGUMENT);
	c->scales[c->scaled] = get(type, scalar, 0);
	*op = 5 + c->scaled++;
	return done(OK);
}
int ncclRedOpDestroy(int op, comm *c) {
	MEET(c);
	return done(op >= 5 && op < 5 + c->scaled ? OK : ARGUMENT);
}
int ncclGroupStart(void) { return depth++, OK; }
int ncclGroupEnd(void) {
	MEET_AS(NULL, group.c ? group.c->rank : -1);
	if (--depth == 0 && group.n) submit(group.c, group.stream, group.n, group.calls);
	if (!depth) group.n = 0;
	return done(OK);
}
int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, comm *c, void *s) {
	MEET(c);
	return done(take(c, s, (call){.kind = ALL_REDUCE, .from = from, .to = to, .count = n, .type = type, .op = op}));
}
int ncclReduce(const void *from, void *to, size_t n, int type, int op, int root, comm *c, void *s) {
	MEET(c);
	return done(take(c, s, (call){.kind = REDUCE, .from = from, .to = to, .count = n, .type = type, .op = op, .root = root}));
}
int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, comm *c, void *s) {
	MEET(c);
	return done(take(c, s, (call){.kind = BROADCAST, .from = from, .to = to, .count = n, .type = type, .root = root}));
}
int ncclAllGather(const void *from, void *to, size_t n, int type, comm *c, void *s) {
	MEET(c);
	return done(take(c, s, (call){.kind = ALL_GATHER, .from = from, .to = to, .count = n, .type = type}));
}
int ncclReduceScatter(const void *from, void *to, size_t n, int type, int op, comm *c, void *s) {
	MEET(c);
	return done(take(c, s, (call){.kind = REDUCE_SCATTER, .from = from, .to = to, .count = n, .type = type, .op = op}));
}
int ncclSend(const void *from, size_t n, int type, int peer, comm *c, void *s) {
	MEET(c);
	return done(take(c, s, (call){.kind = SEND, .from = from, .count = n, .type = type, .peer = peer}));
}
int ncclRecv(void *to, size_t n, int type, int peer, comm *c, void *s) {
	MEET(c);
	return done(take(c, s, (call){.kind = RECV, .to = to, .count = n, .type = type, .peer = peer}));
}
