//go:build gpu && linux && (amd64 || arm64)

#include "lt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

// The library's attributes, by their numbers, which are the same in its versions 11 to 13. Its structures are not, so none is declared.
enum { TRANS_A = 3, TRANS_B = 4, EPILOGUE = 7, BIAS_POINTER = 8, AUX_POINTER = 11, AUX_LD = 12, AUX_STRIDE = 13, SCALE_A = 17, SCALE_B = 18,
	MODE_A = 31, MODE_B = 32 };
enum { BATCH = 5, STRIDE = 6 };
enum { MOST_WORKSPACE = 1, ALIGN_A = 5, ALIGN_D = 8 };
enum { INVALID = 7, NONE = 15 };
static const int32_t scale_of_128 = 4; // a float32 for each 128 elements of a row, from 12.9 on

typedef struct { uint64_t algo[8]; size_t workspace; int status; float waves; int reserved[4]; } choice;

#define FUNCTIONS(F) \
	F(size_t, GetVersion, (void)) \
	F(const char *, GetStatusString, (int)) \
	F(int, Create, (void **)) \
	F(int, Destroy, (void *)) \
	F(int, MatmulDescCreate, (void **, int compute, int scale)) \
	F(int, MatmulDescDestroy, (void *)) \
	F(int, MatmulDescSetAttribute, (void *, int, const void *, size_t)) \
	F(int, MatrixLayoutCreate, (void **, int type, uint64_t rows, uint64_t cols, int64_t ld)) \
	F(int, MatrixLayoutDestroy, (void *)) \
	F(int, MatrixLayoutSetAttribute, (void *, int, const void *, size_t)) \
	F(int, MatmulPreferenceCreate, (void **)) \
	F(int, MatmulPreferenceDestroy, (void *)) \
	F(int, MatmulPreferenceSetAttribute, (void *, int, const void *, size_t)) \
	F(int, MatmulAlgoGetHeuristic, (void *, void *, void *, void *, void *, void *, void *, int, choice *, int *)) \
	F(int, Matmul, (void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, void *, void *, \
		const void *, void *, size_t, CUstream))

struct weft_lt {
#define MEMBER(type, name, args) type(*name) args;
	FUNCTIONS(MEMBER)
};

struct weft_product {
	const weft_lt *lt;
	void *handle, *desc, *a, *b, *c, *d;
	choice best;
	union { float f; double d; } alpha, beta;
	int has_bias, has_aux, accumulate;
	int64_t scale_a, scale_b;
	pthread_mutex_t mu; // the pointers of bias, aux and scales lie in desc
};

int weft_lt_open(const char *path, weft_lt **out, char *why, size_t n) {
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(why, n, "%s", dlerror());
		return -1;
	}
	weft_lt *lt = calloc(1, sizeof *lt);
	if (!lt) return -1;
#define FIND(type, name, args) \
	if (!(lt->name = (type(*) args)dlsym(lib, "cublasLt" #name))) { \
		snprintf(why, n, "%s has no cublasLt" #name, path); \
		free(lt); \
		return -1; \
	}
	FUNCTIONS(FIND)
	*out = lt;
	return 0;
}

size_t weft_lt_version(const weft_lt *lt) { return lt->GetVersion(); }
const char *weft_lt_status(const weft_lt *lt, int status) { return lt->GetStatusString(status - WEFT_LT); }

// CALL is TRY of a function of the library.
#define CALL(name, ...) \
	do { \
		int code = lt->name(__VA_ARGS__); \
		if (code) return (weft_result){WEFT_LT + code, "cublasLt" #name}; \
	} while (0)
#define SET(what, of, name, value) CALL(what##SetAttribute, of, name, &(value), sizeof(value))

weft_result weft_lt_create(const weft_lt *lt, CUcontext c, void **handle) {
	TRY(cuCtxSetCurrent, c);
	CALL(Create, handle);
	return FINE;
}

weft_result weft_lt_destroy(const weft_lt *lt, CUcontext c, void *handle) {
	TRY(cuCtxSetCurrent, c);
	CALL(Destroy, handle);
	return FINE;
}

void weft_lt_free(weft_product *p) {
	if (p->desc) p->lt->MatmulDescDestroy(p->desc);
	void *layouts[] = {p->a, p->b, p->c, p->d};
	for (int i = 0; i < 4; i++)
		if (layouts[i]) p->lt->MatrixLayoutDestroy(layouts[i]);
	pthread_mutex_destroy(&p->mu);
	free(p);
}

static weft_result layout(const weft_lt *lt, void **out, int type, uint64_t rows, uint64_t cols, int64_t ld, int32_t batch, int64_t stride) {
	CALL(MatrixLayoutCreate, out, type, rows, cols, ld);
	if (batch > 1) {
		SET(MatrixLayout, *out, BATCH, batch);
		SET(MatrixLayout, *out, STRIDE, stride);
	}
	return FINE;
}

static weft_result describe(const weft_lt *lt, weft_product *p, const weft_spec *s) {
	CALL(MatmulDescCreate, &p->desc, s->compute, s->type_scale);
	SET(MatmulDesc, p->desc, TRANS_A, s->trans_a);
	SET(MatmulDesc, p->desc, TRANS_B, s->trans_b);
	SET(MatmulDesc, p->desc, EPILOGUE, s->epilogue);
	if (s->has_aux) {
		SET(MatmulDesc, p->desc, AUX_LD, s->ldaux);
		if (s->batch > 1) SET(MatmulDesc, p->desc, AUX_STRIDE, s->stride_aux);
	}
	if (s->scale_a) {
		SET(MatmulDesc, p->desc, MODE_A, scale_of_128);
		SET(MatmulDesc, p->desc, MODE_B, scale_of_128);
	}
	weft_result r = layout(lt, &p->a, s->type_in, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, s->lda, s->batch, s->stride_a);
	if (!r.code) r = layout(lt, &p->b, s->type_in_b, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, s->ldb, s->batch, s->stride_b);
	if (!r.code) r = layout(lt, &p->c, s->type_out, s->m, s->n, s->ldc, s->batch, s->stride_c);
	if (!r.code) r = layout(lt, &p->d, s->type_out, s->m, s->n, s->ldd, s->batch, s->stride_d);
	return r;
}

static weft_result choose(const weft_lt *lt, weft_product *p, const weft_spec *s, void *preference) {
	SET(MatmulPreference, preference, MOST_WORKSPACE, s->most_workspace);
	for (int i = ALIGN_A; i <= ALIGN_D; i++) SET(MatmulPreference, preference, i, s->align);
	// The pointers count in the choice: their alignment is looked at. They are set to none of anybody's memory, aligned as promised, and no better.
	void *none = (void *)(uintptr_t)s->align;
	if (s->has_bias) SET(MatmulDesc, p->desc, BIAS_POINTER, none);
	if (s->has_aux) SET(MatmulDesc, p->desc, AUX_POINTER, none);
	if (s->scale_a) {
		SET(MatmulDesc, p->desc, SCALE_A, none);
		SET(MatmulDesc, p->desc, SCALE_B, none);
	}
	int found = 0;
	CALL(MatmulAlgoGetHeuristic, p->handle, p->desc, p->a, p->b, p->c, p->d, preference, 1, &p->best, &found);
	int status = found ? p->best.status : NONE;
	return status ? (weft_result){WEFT_LT + status, "cublasLtMatmulAlgoGetHeuristic"} : FINE;
}

static weft_result prepare(const weft_lt *lt, CUcontext c, weft_product *p, const weft_spec *s) {
	if (p->handle) TRY(cuCtxSetCurrent, c);
	weft_result r = describe(lt, p, s);
	if (r.code || !p->handle) return r;
	void *preference = NULL;
	CALL(MatmulPreferenceCreate, &preference);
	r = choose(lt, p, s, preference);
	lt->MatmulPreferenceDestroy(preference);
	return r;
}

weft_result weft_lt_prepare(const weft_lt *lt, CUcontext c, void *handle, const weft_spec *s, weft_product **out, size_t *workspace) {
	weft_product *p = calloc(1, sizeof *p);
	if (!p) return (weft_result){CUDA_ERROR_OUT_OF_MEMORY, "calloc"};
	p->lt = lt, p->handle = handle, p->has_bias = s->has_bias, p->has_aux = s->has_aux, p->accumulate = s->accumulate;
	p->scale_a = s->scale_a, p->scale_b = s->scale_b;
	pthread_mutex_init(&p->mu, NULL);
	if (s->type_scale == 1) p->alpha.d = 1, p->beta.d = s->accumulate;
	else p->alpha.f = 1, p->beta.f = s->accumulate;
	weft_result r = prepare(lt, c, p, s);
	if (r.code) weft_lt_free(p);
	else *out = p, *workspace = p->best.workspace;
	return r;
}

static weft_result submit(weft_product *p, CUstream s, const uint64_t *x) {
	const weft_lt *lt = p->lt;
	if (p->has_bias) SET(MatmulDesc, p->desc, BIAS_POINTER, x[4]);
	if (p->has_aux) SET(MatmulDesc, p->desc, AUX_POINTER, x[5]);
	if (p->scale_a) {
		uint64_t a = x[1] + p->scale_a, b = x[0] + p->scale_b;
		SET(MatmulDesc, p->desc, SCALE_A, a);
		SET(MatmulDesc, p->desc, SCALE_B, b);
	}
#define AT(i) ((void *)(uintptr_t)x[i])
	// The caller's A and B are of the row-major product. C that is not read is D.
	CALL(Matmul, p->handle, p->desc, &p->alpha, AT(1), p->a, AT(0), p->b, &p->beta, p->accumulate ? AT(2) : AT(3), p->c, AT(3), p->d, p->best.algo, AT(6),
		p->best.workspace, s);
	return FINE;
}

weft_result weft_lt_run(weft_product *p, CUstream s, const uint64_t *x) {
	pthread_mutex_lock(&p->mu);
	weft_result r = submit(p, s, x);
	pthread_mutex_unlock(&p->mu);
	return r;
}
