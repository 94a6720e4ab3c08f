//go:build ignore

// A cuBLASLt of plain loops, in double precision, over the fake driver's streams.
#include "fake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAD_VALUE = 7, UNSUPPORTED = 15 };
typedef struct { int compute, scale, trans_a, trans_b; uint32_t epilogue; uint64_t bias, aux; int64_t aux_ld, aux_stride;
	uint64_t scales[2]; int32_t modes[2]; } desc; // of A and B
typedef struct { int type; uint64_t rows, cols; int64_t ld; int batch; int64_t stride; } layout;
typedef struct { uint64_t most; uint32_t align; } preference;
typedef struct { char name[8]; uint64_t align, bias, aux; char rest[32]; } algorithm; // the least alignment of matrices, of bias and aux: as they were when it was chosen
typedef struct { algorithm algo; size_t workspace; int status; float waves; int reserved[4]; } choice;
typedef struct { desc x; layout a, b, c, d; uint64_t A, B, C, D; double alpha, beta; } job;

// What the environment says of this library: its version, what it answers to Create, and an attribute that it does not know.
static int said(const char *name, int otherwise) {
	const char *v = getenv(name);
	return v ? atoi(v) : otherwise;
}
size_t cublasLtGetVersion(void) { return said("WEFT_FAKE_CUBLASLT_VERSION", 130000); }
const char *cublasLtGetStatusString(int r) { return r == UNSUPPORTED ? "not supported (fake)" : "failed (fake)"; }
int cublasLtCreate(void **h) {
	int r = said("WEFT_FAKE_CUBLASLT_CREATE", entered() ? 1 : 0);
	return r ? r : (*h = malloc(1), count(HANDLES, 1), 0);
}
int cublasLtDestroy(void *h) { return free(h), count(HANDLES, -1), 0; }
int cublasLtMatmulDescCreate(desc **out, int compute, int scale) {
	desc *d = calloc(1, sizeof *d);
	count(DESCRIPTIONS, 1);
	d->compute = compute, d->scale = scale, d->epilogue = 1;
	return *out = d, 0;
}
int cublasLtMatmulDescDestroy(desc *d) { return free(d), count(DESCRIPTIONS, -1), 0; }
#define SET(number, field) \
	case number: return n == sizeof(field) ? (memcpy(&(field), v, n), 0) : BAD_VALUE
int cublasLtMatmulDescSetAttribute(desc *d, int what, const void *v, size_t n) {
	if (what == said("WEFT_FAKE_CUBLASLT_LACKS", -1)) return BAD_VALUE;
	switch (what) {
		SET(3, d->trans_a);
		SET(4, d->trans_b);
		SET(7, d->epilogue);
		SET(8, d->bias);
		SET(11, d->aux);
		SET(12, d->aux_ld);
		SET(13, d->aux_stride);
		SET(17, d->scales[0]);
		SET(18, d->scales[1]);
		SET(31, d->modes[0]);
		SET(32, d->modes[1]);
	}
	return BAD_VALUE;
}
int cublasLtMatrixLayoutCreate(layout **out, int type, uint64_t rows, uint64_t cols, int64_t ld) {
	if (ld < (int64_t)rows) return BAD_VALUE;
	layout *l = calloc(1, sizeof *l);
	*l = (layout){type, rows, cols, ld, 1}, count(LAYOUTS, 1);
	return *out = l, 0;
}
int cublasLtMatrixLayoutDestroy(layout *l) { return free(l), count(LAYOUTS, -1), 0; }
int cublasLtMatrixLayoutSetAttribute(layout *l, int what, const void *v, size_t n) {
	switch (what) {
		SET(5, l->batch);
		SET(6, l->stride);
	}
	return BAD_VALUE;
}
int cublasLtMatmulPreferenceCreate(preference **out) {
	preference *p = calloc(1, sizeof *p);
	count(PREFERENCES, 1);
	p->align = 256; // the library's, where nothing is said
	return *out = p, 0;
}
int cublasLtMatmulPreferenceDestroy(preference *p) { return free(p), count(PREFERENCES, -1), 0; }
int cublasLtMatmulPreferenceSetAttribute(preference *p, int what, const void *v, size_t n) {
	switch (what) {
		SET(1, p->most);
		SET(5, p->align);
	case 6: case 7: case 8: return *(uint32_t *)v == p->align ? 0 : UNSUPPORTED; // the fake has one for all
	}
	return BAD_VALUE;
}
static size_t size(int type) { return type == 0 ? 4 : type == 1 ? 8 : type == 28 || type == 29 ? 1 : 2; }
// Factors of 8 bits have a scale for each 128 elements here; what must hold for them does for the library on GPUs of compute capability 9.x.
static int scaled(const desc *x, const layout *a, const layout *b, const layout *d, const preference *p) {
	int modes = x->modes[0] == 4 && x->modes[1] == 4 && x->scales[0] && x->scales[1] && (x->scales[0] | x->scales[1]) % 16 == 0;
	int types = size(b->type) == 1 && (a->type == 28 || b->type == 28) && (d->type == 14 || d->type == 0) && x->compute == 68;
	int lies = x->trans_a && !x->trans_b && (a->rows | a->cols | b->cols | a->ld | b->ld | d->ld) % 16 == 0 && p->align % 16 == 0;
	return modes && types && lies && (x->epilogue & ~6u) <= 1 && (d->type == 14 || !(x->epilogue & 4)) && a->batch == 1;
}
int cublasLtMatmulAlgoGetHeuristic(void *h, desc *x, layout *a, layout *b, layout *c, layout *d, preference *p, int most, choice *out, int *found) {
	if (!h) abort(); // as the library does
	if (a->rows == 13) return UNSUPPORTED; // for tests
	if (size(a->type) == 1 && !scaled(x, a, b, d, p)) return UNSUPPORTED;
	memset(out, 0, sizeof *out);
	// For want of better, it needs all alignment that it is promised.
	out->algo = (algorithm){"weft", p->align, x->bias & -x->bias, x->aux & -x->aux};
	out->workspace = p->most < 512 ? p->most : 512;
	return *found = 1, 0;
}

static double eight(uint8_t b, int mantissa) {
	int e = (b & 127) >> mantissa, m = b & ((1 << mantissa) - 1), bias = mantissa == 3 ? 7 : 15;
	double v = ldexp(e ? m + (1 << mantissa) : m, (e ? e : 1) - bias - mantissa);
	if (mantissa == 3 && (b & 127) == 127) v = NAN;
	if (mantissa == 2 && e == 31) v = m ? NAN : INFINITY;
	return b & 128 ? -v : v;
}
static double half(uint16_t h) {
	int e = h >> 10 & 31, m = h & 1023;
	double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
	return h >> 15 ? -v : v;
}
static double load(int type, const char *p, int64_t k) {
	uint32_t u;
	uint16_t h;
	float f;
	double d;
	switch (type) {
	case 0: return memcpy(&f, p + 4 * k, 4), f;
	case 1: return memcpy(&d, p + 8 * k, 8), d;
	case 28: return eight(p[k], 3);
	case 29: return eight(p[k], 2);
	case 14: return memcpy(&h, p + 2 * k, 2), u = (uint32_t)h << 16, memcpy(&f, &u, 4), f;
	}
	return memcpy(&h, p + 2 * k, 2), half(h);
}
static void store(int type, char *p, int64_t k, double v) {
	float f = v;
	uint32_t u;
	uint16_t h;
	switch (type) {
	case 0: memcpy(p + 4 * k, &f, 4); return;
	case 1: memcpy(p + 8 * k, &v, 8); return;
	case 14:
		memcpy(&u, &f, 4), h = (u + 0x7fff + (u >> 16 & 1)) >> 16, memcpy(p + 2 * k, &h, 2);
		return;
	}
	double a = fabs(v), best = INFINITY; // the nearest half, by looking at the neighbours of a first guess
	int e;
	frexp(a, &e);
	uint16_t guess = a < ldexp(1, -14) ? (uint16_t)ldexp(a, 24) : a > 65519 ? 0x7c00 : (uint16_t)((e + 14) << 10 | ((int)ldexp(a, 11 - e) & 1023));
	h = guess;
	for (int i = 0; i < 2 && guess < 0x7c00; i++)
		if (fabs(half(guess + i) - a) < best) best = fabs(half(guess + i) - a), h = guess + i;
	h |= v < 0 ? 0x8000 : 0;
	memcpy(p + 2 * k, &h, 2);
}

static double gelu(double x) { return .5 * x * (1 + tanh(.7978845608028654 * (x + .044715 * x * x * x))); }
static double dgelu(double x) {
	double t = tanh(.7978845608028654 * (x + .044715 * x * x * x));
	return .5 * (1 + t) + .5 * x * (1 - t * t) * .7978845608028654 * (1 + 3 * .044715 * x * x);
}

static double finish(const job *j, double v, char *bias, char *aux, int64_t row, int64_t col) {
	uint32_t e = j->x.epilogue;
	int type = j->d.type;
	int64_t at = col * j->x.aux_ld + row;
	if ((e & 4) && e < 256) v += load(type, bias, row); // all with a bias but the gradients
	if (e == 136 || e == 152) return aux[at >> 3] >> (at & 7) & 1 ? v : 0;
	if (e == 192 || e == 208) return v * dgelu(load(type, aux, at));
	if ((e & 128) && (e & 2)) aux[at >> 3] = (aux[at >> 3] & ~(1 << (at & 7))) | (v > 0) << (at & 7);
	if ((e & 128) && (e & 32)) store(type, aux, at, v);
	if (e & 2) return v > 0 ? v : 0;
	if (e & 32) return gelu(v);
	return v;
}

static int one(const job *j, int64_t n) {
	const layout *a = &j->a, *b = &j->b, *c = &j->c, *d = &j->d;
	const int64_t rows = d->rows, cols = d->cols, inner = j->x.trans_a ? a->rows : a->cols;
	const size_t in = size(a->type), out = size(d->type);
	uint32_t e = j->x.epilogue;
	char *A = host(j->A + n * a->stride * in, ((a->cols - 1) * a->ld + a->rows) * in);
	char *B = host(j->B + n * b->stride * in, ((b->cols - 1) * b->ld + b->rows) * in);
	char *D = host(j->D + n * d->stride * out, ((d->cols - 1) * d->ld + d->rows) * out);
	char *C = host(j->C + n * c->stride * out, ((c->cols - 1) * c->ld + c->rows) * out);
	int has_aux = e >= 130 && e <= 208, sums_d = e == 152 || e == 208;
	char *aux = has_aux ? host(j->x.aux + n * j->x.aux_stride * out, (e == 130 || e == 134 || e == 136 || e == 152) ? cols * j->x.aux_ld / 8
		: ((cols - 1) * j->x.aux_ld + rows) * out) : NULL;
	int has_bias = (e & 4) || sums_d || e == 256 || e == 512;
	char *bias = has_bias ? host(j->x.bias, (e == 512 ? cols : rows) * out) : NULL;
	const int64_t blocks = in == 1 ? (inner + 127) / 128 : 0;
	float *sa = blocks ? (float *)host(j->x.scales[0], 4 * rows * blocks) : NULL, *sb = blocks ? (float *)host(j->x.scales[1], 4 * cols * blocks) : NULL;
	if (!A || !B || !C || !D || (has_aux && !aux) || (has_bias && !bias) || (blocks && (!sa || !sb))) return ILLEGAL_ADDRESS;
#define ATA(r, k) load(a->type, A, j->x.trans_a ? (r) * a->ld + (k) : (k) * a->ld + (r))
#define ATB(k, q) load(b->type, B, j->x.trans_b ? (k) * b->ld + (q) : (q) * b->ld + (k))
	for (int64_t r = 0; r < rows; r++) {
		double total = 0;
		for (int64_t q = 0; q < cols; q++) {
			double v = 0;
			for (int64_t k = 0; k < inner; k++) v += ATA(r, k) * ATB(k, q) * (blocks ? (double)sa[k / 128 * rows + r] * sb[k / 128 * cols + q] : 1);
			v *= j->alpha;
			if (j->beta) v += j->beta * load(c->type, C, q * c->ld + r);
			v = finish(j, v, bias, aux, r, q);
			store(d->type, D, q * d->ld + r, v);
			total += v;
		}
		if (sums_d) store(d->type, bias, r, total);
	}
	for (int64_t r = 0; e == 256 && r < rows; r++) {
		double v = 0;
		for (int64_t k = 0; k < inner; k++) v += ATA(r, k);
		store(d->type, bias, r, v);
	}
	for (int64_t q = 0; e == 512 && q < cols; q++) {
		double v = 0;
		for (int64_t k = 0; k < inner; k++) v += ATB(k, q);
		store(d->type, bias, q, v);
	}
	return OK;
}

static int run(op *o) {
	const job *j = (const job *)o->more;
	int r = OK;
	for (int n = 0; !r && n < j->d.batch; n++) r = one(j, n);
	return r;
}

int cublasLtMatmul(void *h, desc *x, const void *alpha, const void *A, layout *a, const void *B, layout *b, const void *beta, const void *C, layout *c,
	void *D, layout *d, const algorithm *algo, void *workspace, size_t n, void *s) {
	if (strcmp(algo->name, "weft") || (n && !workspace) || (uint64_t)workspace % 16) return BAD_VALUE;
	uint64_t all = (uint64_t)A | (uint64_t)B | (uint64_t)C | (uint64_t)D, e = x->epilogue;
	if (size(a->type) == 1 && (x->scales[0] | x->scales[1]) % 16) return BAD_VALUE;
	if (all % algo->align || (e & (4 | 16 | 256 | 512) && x->bias % algo->bias) || (e & 128 && x->aux % algo->aux)) return BAD_VALUE;
	job j = {*x, *a, *b, *c, *d, (uint64_t)A, (uint64_t)B, (uint64_t)C, (uint64_t)D};
	j.alpha = x->scale ? *(double *)alpha : *(float *)alpha;
	j.beta = x->scale ? *(double *)beta : *(float *)beta;
	return submit(s, (op){.run = run, .more = (char *)&j, .more_len = sizeof j}) ? 13 : 0;
}
