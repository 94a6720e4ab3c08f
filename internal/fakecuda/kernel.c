//go:build ignore

// Kernels: modules, and launches, which the test program is asked to do.
#include "driver.h"

static int (*ask)(question *);
void weft_fake_answer(void *f) { ask = f; }

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
		m->id = q->id, m->image = strdup(image), count(MODULES, 1);
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
	count(MODULES, -1);
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
