// A libcuda.so.1 whose GPUs are this host: memory in files of the process, streams as threads, kernels by a function of the test program.
#ifndef WEFT_FAKE_H
#define WEFT_FAKE_H

#include "names.h" // which Build writes: of all functions that others call

#include <stddef.h>
#include <stdint.h>

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, BAD_DEVICE = 101, BAD_IMAGE = 200, BAD_CONTEXT = 201, NO_PEER = 217,
	NO_PTX_VERSION = 222, BAD_HANDLE = 400, BAD_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, PEER_ALREADY = 704, LAUNCH_FAILED = 719,
	NOT_SUPPORTED = 801, UNSUPPORTED_CAPTURE = 900, INVALIDATED_CAPTURE = 901, MERGED_CAPTURE = 902, UNMATCHED_CAPTURE = 903, UNJOINED_CAPTURE = 904,
	ISOLATED_CAPTURE = 905, CAPTURED_EVENT = 907 };

// A piece of memory as the GPU sees it (at) and as the host does.
typedef struct { uint64_t at, n; char *host; } piece;

// What the test program is asked: to load an image, to find a kernel in it, to run one. It answers by the result, and by what stands below "answer".
enum { LOAD = 1, FIND, RUN, UNLOAD };
enum { MOST_PARAMS = 64 };
typedef struct {
	int64_t what;
	uint64_t module, kernel; // as it answered before
	const char *image;       // LOAD
	uint64_t len;
	const char *name; // FIND
	uint32_t grid[3], block[3];
	uint64_t shared;
	const char *args; // RUN
	uint64_t args_len;
	const piece *memory; // RUN: all there is
	uint64_t pieces;
	// answer
	uint64_t id; // of the module, of the kernel
	int64_t params, threads, static_shared;
	uint64_t param_at[MOST_PARAMS], param_n[MOST_PARAMS];
	char log[1024];
} question;

// An operation of a stream.
typedef struct op op;
struct op {
	op *next;
	int (*run)(op *); // with the lock held, which it may give up meanwhile
	uint64_t a, b, n;
	void *p;
	unsigned long generation;
	char *more; // freed with it
	size_t more_len;
};

typedef struct stream stream;

// submit takes a copy of an operation, and of its more.
int submit(stream *, op);
// host is where n bytes of the GPU's memory lie; the lock is held.
char *host(uint64_t at, uint64_t n);
void lock(void), unlock(void);
// entered is what is wrong with calling the driver now.
int entered(void);

// count notes that there are more, or fewer, of what somebody must give back.
enum { MEMORY, PINNED, IMPORTS, STREAMS, EVENTS, MODULES, GRAPHS, CONTEXTS, HANDLES, DESCRIPTIONS, LAYOUTS, PREFERENCES, KINDS };
void count(int kind, int by);

#endif
