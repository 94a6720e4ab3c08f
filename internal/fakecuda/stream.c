//go:build ignore

// Streams, each a thread that takes one operation after another, and events.
#include "driver.h"

#include <signal.h>

pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
stream *streams;

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

op *copied(const op *o) {
	op *c = malloc(sizeof *c);
	*c = *o;
	c->next = NULL;
	if (o->more) memcpy(c->more = malloc(o->more_len + 1), o->more, o->more_len);
	return c;
}

void put(stream *s, const op *o) {
	*s->last = copied(o);
	s->last = &(*s->last)->next;
}

int submit(stream *s, op o) {
	if (!s) return BAD_HANDLE; // the default stream is not for us
	lock();
	if (&gpus[s->gpu] != current) return unlock(), BAD_HANDLE;
	if (s->capture) record(s, &o);
	else put(s, &o);
	pthread_cond_broadcast(&changed);
	unlock();
	return OK;
}

void drain(stream *s) {
	while (s->first) pthread_cond_wait(&changed, &mu);
}
void drain_all(int g) {
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
	s->next = streams, streams = s, count(STREAMS, 1);
	unlock();
	sigset_t all, was; // signals are for the program's own threads
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &was);
	pthread_create(&s->thread, NULL, serve, s);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return *out = s, OK;
}
int cuStreamDestroy_v2(stream *s) {
	lock();
	drain(s);
	for (stream **p = &streams; *p; p = &(*p)->next)
		if (*p == s) {
			*p = s->next, count(STREAMS, -1);
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
	*e = calloc(1, sizeof **e), count(EVENTS, 1);
	return (*e)->untimed = flags & 2, OK;
}
int cuEventDestroy_v2(event *e) { return count(EVENTS, -1), entered(); } // it may be waited for: left as it is
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
	if (!a->asked || !b->asked || a->untimed || b->untimed) return BAD_HANDLE;
	if (a->done < a->asked || b->done < b->asked) return NOT_READY;
	return *ms = (b->at.tv_sec - a->at.tv_sec) * 1e3 + (b->at.tv_nsec - a->at.tv_nsec) / 1e6, OK;
}
int cuEventElapsedTime_v2(float *ms, event *a, event *b) { return cuEventElapsedTime(ms, a, b); }
