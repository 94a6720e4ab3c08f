#include "common.cuh"
// nvrtc: --fmad=false
// One array of several, element by element, in their order, to the bits of package collective's on the host; a NaN is some NaN.

enum Fn { Sum = 1, Mean, Prod, Min, Max, And, Or, Xor, Scaled };

struct Arrays {
	const void* at[16];
};

// Brain is a bfloat16 as GPUs before compute_80 make it, too.
struct Brain {
	unsigned short bits;

	Brain(float v) {
		u32 b = __float_as_uint(v);
		bits = (v != v ? b | 1 << 22 : b + 0x7fff + (b >> 16 & 1)) >> 16;
	}
	operator float() const { return __uint_as_float((u32)bits << 16); }
};

template <> struct Num<Brain> { typedef float A; };

bool negative(float v) { return __float_as_int(v) < 0; }
bool negative(double v) { return __double_as_longlong(v) < 0; }
template <class A> bool negative(A v) { return v < 0; }

// before says whether the minimum of two is the first: a NaN, the smaller one, or of two zeros the negative one.
template <class A> bool before(A a, A b) { return a != a || a < b || a == b && negative(a); }
template <class A> A lesser(A a, A b) { return before(a, b) ? a : b; }
template <class A> A greater(A a, A b) { return a != a || a > b || a == b && !negative(a) ? a : b; }

template <class A> A bitwise(u32 fn, A a, A b) { return fn == And ? a & b : fn == Or ? a | b : a ^ b; }
float bitwise(u32, float a, float) { return a; }
double bitwise(u32, double a, double) { return a; }

template <class A> A joined(u32 fn, A a, A b) {
	switch (fn) {
	case Prod: return a * b;
	case Min: return lesser(a, b);
	case Max: return greater(a, b);
	case And:
	case Or:
	case Xor: return bitwise(fn, a, b);
	}
	return a + b;
}

// o = fn of count arrays of n elements. It may be one of them.
template <class T> void fold(T* o, const Arrays& in, Acc<T> factor, u64 n, u32 count, u32 fn) {
	typedef Acc<T> A;
	u64 k = u64(blockIdx.x) * blockDim.x + threadIdx.x;
	if (k >= n) return;
	A a = ((const T*)in.at[0])[k];
	if (fn == Scaled) a = a * factor;
	for (u32 r = 1; r < count; r++) {
		A x = ((const T*)in.at[r])[k];
		if (fn == Scaled) x = x * factor;
		a = joined<A>(fn, a, x);
	}
	if (fn == Mean) a = a / A(count);
	o[k] = a;
}

#define KERNEL(T, name) \
	GLOBAL(256) fold_##name(T* o, Arrays in, double factor, u64 n, u32 count, u32 fn) { fold<T>(o, in, (Acc<T>)factor, n, count, fn); }

BOTH(KERNEL)
KERNEL(int, i32)
KERNEL(i64, i64)
KERNEL(Brain, b)
