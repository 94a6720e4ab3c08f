//go:build gpu && linux && (amd64 || arm64)

#include "link.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symbols.h"

// Every driver function that the program refers to is a jump through a pointer, which weft_open fills in from the library. Before, and where
// the library lacks the function, the jump leads here: CUDA_ERROR_NOT_FOUND for a driver that is open, CUDA_ERROR_NO_DEVICE for none.
static int opened;
static int absent(void) { return opened ? 500 : 100; }

#define SLOT(name) __attribute__((visibility("hidden"), used)) void *weft_##name = (void *)absent;
SYMBOLS(SLOT)

#if defined(__x86_64__)
#define JUMP(name) "jmp *weft_" name "(%rip)\n"
#else
#define JUMP(name) "adrp x16, weft_" name "\n ldr x16, [x16, #:lo12:weft_" name "]\n br x16\n"
#endif
// Hidden: a library that is loaded later must find the driver's own functions, never these.
#define TRAMPOLINE(name) \
	__asm__(".text\n .globl " #name "\n .hidden " #name "\n .type " #name ", %function\n .balign 16\n" #name ":\n" JUMP(#name) \
		".size " #name ", .-" #name "\n");
SYMBOLS(TRAMPOLINE)

// gorgonia.org/cu calls cuInit before main, and ends the process where it fails. The real one is called by weft_open.
__attribute__((visibility("hidden"))) int cuInit(unsigned flags) { return 0; }

static const struct { const char *name; void **slot; } table[] = {
#define ENTRY(name) {#name, &weft_##name},
	SYMBOLS(ENTRY)
};

int weft_open(const char *path, char *why, size_t n) {
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(why, n, "%s", dlerror());
		return -1;
	}
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
	if (!init) {
		snprintf(why, n, "%s is not a CUDA driver: it has no cuInit", path);
		return -1;
	}
	// A GPU takes work from as many queues; where there are more streams than these, some stand behind others. It is 8 unless the user says otherwise.
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", 0);
	int r = init(0);
	if (r) return r;
	opened = 1;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		void *f = dlsym(lib, table[i].name);
		if (f) *table[i].slot = f;
	}
	weft_cuDeviceGetUuid = weft_cuDeviceGetUuid_v2; // the first version does not tell what MIG made of one GPU
	return 0;
}
