//go:build ignore

// Graphs.
#include "driver.h"

#include <sched.h>

static unsigned long captures;

int cuStreamBeginCapture_v2(stream *s, int mode) {
	ENTER;
	lock();
	int r = mode == 2 && !s->capture ? OK : INVALID;
	if (!r) {
		s->capture = calloc(1, sizeof(graph));
		count(GRAPHS, 1);
		s->capture->id = ++captures, s->owns = 1;
		memset(&s->ends, 0, sizeof s->ends);
	}
	unlock();
	return r;
}
void record(stream *s, const op *o) {
	graph *g = s->capture;
	if (g->count == MOST_OPS) abort(); // more than tests need
	node *n = calloc(1, sizeof *n);
	*n = (node){copied(o), s->ends};
	g->nodes = realloc(g->nodes, (g->count + 1) * sizeof *g->nodes);
	memset(&s->ends, 0, sizeof s->ends);
	s->ends.is[g->count / 64] |= 1ul << g->count % 64;
	g->nodes[g->count++] = n;
}
static void free_graph(graph *g) {
	count(GRAPHS, -1);
	for (int k = 0; k < g->count; k++) free(g->nodes[k]->o->more), free(g->nodes[k]->o), free(g->nodes[k]);
	free(g->nodes);
	free(g);
}
static int has(const ends *e, int k) { return e->is[k / 64] >> k % 64 & 1; }
void unite(ends *e, const ends *more) {
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
	count(GRAPHS, 1);
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
