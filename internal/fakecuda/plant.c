//go:build ignore

// What tests plant in the calls of the fake, and what is seen of them. The functions that others call are here; each leads to the fake's own, which names.h has renamed.
#define PLANTS
#include "driver.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAME(name) #name,
static const char *const names[] = {CALLS(NAME)};
enum { MANY = sizeof names / sizeof *names };

// seen is a file where WEFT_FAKE_SEEN names one: it outlives the process, and several processes share it.
typedef struct { int64_t hits, met, left[KINDS], calls[MANY]; } sight; // met: the last call with a hit, from 1
static sight private, *seen = &private;

void count(int kind, int by) { __atomic_add_fetch(&seen->left[kind], by, __ATOMIC_RELAXED); }
long weft_fake_hits(void) { return seen->hits; }
long weft_fake_met(void) { return seen->met; }
long weft_fake_left(int kind) { return seen->left[kind]; }
long weft_fake_calls(int call) { return seen->calls[call]; }

// A plan is CALL:KIND, CALL@N:KIND for the N-th call, or *@N:KIND for the N-th of all. KIND is hang, crash, abort, exit, slow, memory, lostN for an error of that number
// that stays, or the number of an error.
static struct { int call; long at, count, code; char kind; } plan;

int weft_fake_plant(const char *text) {
	plan.kind = 0, plan.call = -1, plan.at = plan.count = plan.code = 0;
	size_t n = strcspn(text, "@:");
	if (!n) return *text ? -1 : 0;
	if (strncmp(text, "*", n)) {
		for (int k = 0; k < MANY; k++)
			if (!strncmp(names[k], text, n) && !names[k][n]) plan.call = k;
		if (plan.call < 0) return -1;
	}
	if (text[n] == '@') plan.at = atol(text + n + 1);
	const char *kind = strchr(text, ':');
	if (!kind++ || !*kind) return -1;
	size_t word = strcspn(kind, "0123456789");
	plan.code = atol(kind + word);
	if (!word) return plan.kind = '=', 0;
	static const char *const kinds[] = {"hang", "crash", "abort", "exit", "slow", "memory", "lost"};
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
		if (strlen(kinds[k]) == word && !strncmp(kinds[k], kind, word)) return plan.kind = *kind, 0;
	return -1;
}

__attribute__((constructor)) static void begin(void) {
	const char *text = getenv("WEFT_FAKE_PLANT"), *path = getenv("WEFT_FAKE_SEEN");
	if (path && *path) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		void *p = fd < 0 || ftruncate(fd, sizeof *seen) ? MAP_FAILED : mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED) perror(path), _exit(3);
		seen = p;
		close(fd);
	}
	if (text && weft_fake_plant(text)) fprintf(stderr, "WEFT_FAKE_PLANT=%s is no plan\n", text), _exit(3);
}

// planted says whether a call is not made, and what it answers.
static int planted(int call, long *answer) {
	__atomic_add_fetch(&seen->calls[call], 1, __ATOMIC_RELAXED);
	if (!plan.kind || (plan.call >= 0 && plan.call != call)) return 0;
	long n = __atomic_add_fetch(&plan.count, 1, __ATOMIC_RELAXED);
	if (plan.at && n != plan.at) return 0;
	seen->met = call + 1;
	__atomic_add_fetch(&seen->hits, 1, __ATOMIC_SEQ_CST);
	int library = !strncmp(names[call], "cublasLt", 8);
	switch (plan.kind) {
	case 'h':
		fprintf(stderr, "planted: %s hangs\n", names[call]);
		for (;;) pause();
	case 'c': *(volatile int *)8 = 0; break;
	case 'a': abort();
	case 'e': _exit(0);
	case 's': return usleep(20000), 0;
	case 'm': *answer = library ? 3 : 2; break;
	case 'l':
		if (current) current->sticky = plan.code;
		*answer = library ? 14 : plan.code;
		break;
	default: *answer = plan.code;
	}
	if (!strcmp(names[call], "cublasLtGetStatusString")) *answer = 0; // it answers with text
	return 1;
}

#define INDEX(name) at_##name,
enum { CALLS(INDEX) };
// Words are enough for the arguments of any of them, in registers and behind them; who takes fewer does not look at the rest.
#define WORDS(T) T a, T b, T c, T d, T e, T f, T g, T h, T i, T j, T k, T l, T m, T n, T o, T p
#define PLANT(name) \
	long own_##name(WORDS(long)); \
	long name(WORDS(long)) { \
		long answer = 0; \
		return planted(at_##name, &answer) ? answer : own_##name(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p); \
	}
CALLS(PLANT)
