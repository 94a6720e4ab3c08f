// A profiler: it appends the ranges that it hears of to the file that WEFT_FAKE_PROFILE names, and refuses where that is empty.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*function)(void);
typedef struct {
	size_t size;
	int (*functions)(int module, function ***table, unsigned *n);
} callbacks;
typedef struct {
	size_t size;
	uint32_t version, reserved;
	void (*injection)(uint32_t version);
} versions;

static FILE *out;
static uint64_t last = 1L << 40; // ids have more than 32 bits

static uint64_t start(const char *name) {
	fprintf(out, "begin %lu %s\n", ++last - (1L << 40), name);
	fflush(out);
	return last;
}
static void end(uint64_t id) {
	fprintf(out, "end %lu\n", id - (1L << 40));
	fflush(out);
}

int InitializeInjectionNvtx2(const void *(*table)(uint32_t id)) {
	const char *path = getenv("WEFT_FAKE_PROFILE");
	if (!path || !*path || !(out = fopen(path, "a"))) return 0;
	const versions *v = table(3);
	if (!v || v->size != sizeof *v || v->version != 3 || table(2) || table(9)) abort();
	v->injection(2);
	const callbacks *c = table(1);
	if (!c || c->size < sizeof *c) abort();
	const unsigned want[] = {0, 16, 9, 15, 7, 16, 7, 0};
	for (int m = 0; m < 8; m++) {
		function **f = NULL;
		unsigned n = 0;
		if (c->functions(m, &f, &n) != (want[m] > 0) || n != want[m]) abort();
		for (unsigned k = 1; k < n; k++) *f[k] = (function)abort; // each has a place
	}
	function **core;
	c->functions(1, &core, NULL);
	*core[5] = (function)start, *core[7] = (function)end;
	return 1;
}
