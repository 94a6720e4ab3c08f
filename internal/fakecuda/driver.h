// What the files of the fake driver share.
#ifndef WEFT_DRIVER_H
#define WEFT_DRIVER_H

#define _GNU_SOURCE
#include "fake.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GPUS = 2 };

// What a test may set, by name.
typedef struct {
	long memory;  // bytes of each GPU
	long devices; // how many GPUs there are
	long init;    // what cuInit says
	long fault;   // what the next kernel that runs fails with
	long refuse;  // what the next launch is refused with
	long null;    // launches do nothing, at once
	long old;     // the driver is of CUDA 12.0: it cannot tell a kernel's parameters
	long peers;   // the GPUs can access one another
	long arch;    // their compute capability, times ten
	long unmapped; // the driver encodes no maps of tensors
} settings;

typedef struct { int users; long used; int sticky, opened; } gpu; // opened: the others, by bits
typedef struct block { struct block *next; piece m; int fd, gpu, opens, foreign; char key[32]; } block;
// A graph is operations in the order of their recording, numbered, of which each comes after some others. Ends are the numbers of what comes last, by bits.
enum { MOST_OPS = 4096 };
typedef struct { uint64_t is[MOST_OPS / 64]; } ends;
typedef struct { op *o; ends after; } node;
typedef struct graph { unsigned long id; node **nodes; int count, failed, busy; unsigned long launched; } graph;
typedef struct pin { struct pin *next; char *p; size_t n; } pin;
typedef struct { pthread_cond_t c; unsigned long asked, done; struct timespec at; unsigned long in; int untimed; ends ends; } event;
typedef struct { uint64_t id; char *image; } module;
typedef struct { uint64_t id, module; int64_t params, threads, static_shared, most_shared; uint64_t at[MOST_PARAMS], n[MOST_PARAMS]; } function;
struct stream { stream *next; int gpu, stop, busy; pthread_t thread; op *first, **last; graph *capture; int owns; ends ends; };

#pragma GCC visibility push(hidden)

extern settings set;
extern gpu gpus[GPUS];
extern __thread gpu *current;

extern pthread_mutex_t mu; // of lock and unlock; it guards what follows
extern pthread_cond_t changed; // a stream has come further, or has more to do
extern block *blocks;
extern pin *pins;
extern stream *streams;
// copied is an operation, and put queues one, for a stream that is not captured.
op *copied(const op *);
void put(stream *, const op *);
// record makes an operation a part of what a stream captures.
void record(stream *, const op *);
void unite(ends *, const ends *more);
// drain waits until a stream has done all that it has, drain_all until all streams of a GPU have.
void drain(stream *);
void drain_all(int gpu);

#pragma GCC visibility pop

#define ENTER \
	int wrong = entered(); \
	if (wrong) return wrong

#endif
