//go:build ignore

// Memory, each allocation a file without a name, which other processes open by way of /proc, and copies.
#include "driver.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

block *blocks;
pin *pins;
static int made;
static uint64_t next_at = 0x300000000000;

static block *find(uint64_t at, uint64_t n) {
	for (block *b = blocks; b; b = b->next)
		if (at >= b->m.at && at - b->m.at <= b->m.n && n <= b->m.n - (at - b->m.at)) return b;
	return NULL;
}
char *host(uint64_t at, uint64_t n) {
	block *b = find(at, n);
	return b ? b->m.host + (at - b->m.at) : NULL;
}

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
			snprintf(b->key, sizeof b->key, "%d", ++made), count(MEMORY, 1);
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
		count(foreign ? IMPORTS : MEMORY, -1);
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
	if (b) strcpy(b->key, key), *at = b->m.at, count(IMPORTS, 1);
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
	p->next = pins, pins = p, count(PINNED, 1);
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
			*p = q->next, r = OK, count(PINNED, -1);
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
