#ifndef WEFT_LT_H
#define WEFT_LT_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

// cuBLASLt, opened when a program first wants a product. Statuses of the library are returned as WEFT_LT plus their value, so that they are
// not mistaken for the driver's.
#define WEFT_LT 10000

// What became of some calls: 0, or a number of the driver's or the library's, and the function that gave it.
typedef struct {
	int code;
	const char *op;
} weft_result;

// TRY makes a call, and ends the function that it stands in where that fails; FINE is its result where all went well.
#define TRY(name, ...) \
	do { \
		int code = name(__VA_ARGS__); \
		if (code) return (weft_result){code, #name}; \
	} while (0)
#define FINE ((weft_result){0, NULL})

typedef struct weft_lt weft_lt;           // the opened library
typedef struct weft_product weft_product; // a prepared product

// A product as the library knows it, of column-major matrices.
typedef struct {
	uint64_t m, n, k;
	int64_t lda, ldb, ldc, ldd, ldaux;
	int64_t stride_a, stride_b, stride_c, stride_d, stride_aux;
	uint64_t most_workspace;
	int32_t batch;
	int32_t trans_a, trans_b; // 0 or 1
	int32_t type_in, type_out, type_scale, compute;
	uint32_t epilogue, align;
	int32_t has_bias, has_aux, accumulate;
	int32_t type_in_b;
	int64_t scale_a, scale_b; // bytes from a factor to its scales; 0: it has none
} weft_spec;

int weft_lt_open(const char *path, weft_lt **out, char *why, size_t n);
size_t weft_lt_version(const weft_lt *);
const char *weft_lt_status(const weft_lt *, int status);

// weft_lt_create makes a handle for the context c.
weft_result weft_lt_create(const weft_lt *, CUcontext c, void **handle);
weft_result weft_lt_destroy(const weft_lt *, CUcontext c, void *handle);

// weft_lt_prepare describes a product and, where there is a handle, has the library choose how to compute it.
weft_result weft_lt_prepare(const weft_lt *, CUcontext c, void *handle, const weft_spec *, weft_product **out, size_t *workspace);
void weft_lt_free(weft_product *);

// weft_lt_run submits a product: args are the addresses that List.AddProduct writes: its A is B here, and its B is A.
weft_result weft_lt_run(weft_product *, CUstream, const uint64_t *args);

#endif
