package cuda

import "errors"

// ErrNoProduct says that the library has no such product on this GPU.
var ErrNoProduct = errors.New("the library has no such product")

// Multiplier is a [Driver] that has a library for products of matrices, which is NVIDIA's cuBLASLt.
type Multiplier interface {
	// Product prepares a product; the library's choice of an algorithm is kept per spec, so asking
	// again is cheap. It fails with ErrNoLibrary where there is no library, with ErrNoProduct where
	// that has no such product, and names all that is wrong with a bad spec.
	Product(ProductSpec) (Product, error)
}

// Product is a prepared product, which a [List] names through AddProduct.
type Product interface {
	Func
	// Workspace is how many bytes of the GPU's memory, aligned to 256, a launch needs for itself.
	Workspace() int
}

// Elem is the type of a matrix's elements.
type Elem uint8

// The element types of products.
const (
	F32 Elem = iota
	F64
	BF16
	F16
	E4M3 // 8 bits, of which 3 are mantissa: from 2⁻⁹ to 448, without infinity; for factors alone
	E5M2 // 8 bits, of which 2 are mantissa: from 2⁻¹⁶ to 57,344
	elems
)

// Size is the number of bytes of an element.
func (e Elem) Size() int { return [...]int{4, 8, 2, 2, 1, 1, 1, 1}[e&7] }

// Scaled says whether factors of that type have scales ([ProductSpec]).
func (e Elem) Scaled() bool { return e == E4M3 || e == E5M2 }

// ScaledTerms is how many terms of a sum share a scale.
const ScaledTerms = 128

// Scales is how many scales some rows of so many terms have.
func Scales(rows, terms int) int { return (terms + ScaledTerms - 1) / ScaledTerms * rows }

// Arithmetic is how products of float32 are computed; sums are always kept in float32 (in float64
// for F64).
type Arithmetic uint8

// The kinds of arithmetic.
const (
	Exact Arithmetic = iota // as the elements are
	TF32                    // float32 factors are rounded to 10 bits of mantissa, which tensor cores take
)

// Epilogue is what happens to a product before it is stored.
//
// The bias has N elements and is added to each row of D. GELU is the one with tanh. Aux is written
// by epilogues of a forward, and read by those of a backward (DReLU, DGELU): for ReLU a bit per
// element, LDAux bits to a row, a multiple of 128; for GELU its argument, LDAux elements to a row,
// a multiple of 8. BGrad writes the sum of D's rows to the bias, BGradA the sum of op(A)'s columns
// (M elements), and BGradB that of op(B)'s rows.
type Epilogue uint8

// The epilogues.
const (
	None Epilogue = iota
	Bias
	ReLU
	ReLUBias
	ReLUAux
	ReLUAuxBias
	GELU
	GELUBias
	GELUAux
	GELUAuxBias
	DReLU
	DReLUBGrad
	DGELU
	DGELUBGrad
	BGradA
	BGradB
	epilogues
)

// HasBias says whether the epilogue reads or writes a bias.
func (e Epilogue) HasBias() bool {
	switch e {
	case Bias, ReLUBias, ReLUAuxBias, GELUBias, GELUAuxBias, DReLUBGrad, DGELUBGrad, BGradA, BGradB:
		return true
	}
	return false
}

// HasAux says whether the epilogue reads or writes an aux.
func (e Epilogue) HasAux() bool {
	switch e {
	case ReLUAux, ReLUAuxBias, GELUAux, GELUAuxBias, DReLU, DReLUBGrad, DGELU, DGELUBGrad:
		return true
	}
	return false
}

// ProductSpec is D = epilogue(op(A)·op(B)), or with Accumulate D = epilogue(op(A)·op(B) + C), of
// row-major matrices: op(A) is M×K, op(B) K×N, C and D M×N. TransA says that A is stored K×M,
// TransB that B is stored N×K.
//
// Factors of 8 bits are multiplied by scales, of float32: one for each 128 elements of a row of A,
// and of a row of B as stored. The scales of all rows for their first elements come first, then
// those for the next. There is one such product, TransB alone, of sizes that are multiples of 16.
type ProductSpec struct {
	M, N, K            int
	TransA, TransB     bool
	LDA, LDB, LDC, LDD int // elements from one stored row to the next; 0: dense
	LDAux              int // as the epilogue says; 0: N, rounded up to what it must be a multiple of
	Batch              int // how many products; 0: one
	// StrideA … are the elements from one matrix of a batch to the next; 0 is the same matrix
	// again, which D's must not be.
	StrideA, StrideB, StrideC, StrideD, StrideAux int
	// In is of A and B, Out of C, D, the bias and GELU's aux. Out is In, or F32 where In is BF16 or
	// F16: sums are float32 either way, and a D of BF16 is rounded from them after the epilogue. Of
	// factors of 8 bits Out is F32, without a bias, or BF16.
	In, Out Elem
	// InB is of B where that is not as A: of factors of 8 bits, one of which must be E4M3. 0: In.
	InB            Elem
	ScaleA, ScaleB int // bytes from a matrix of 8 bits to its scales, multiples of 16
	Arithmetic     Arithmetic
	Accumulate     bool
	Epilogue       Epilogue
	Align          int // what all addresses are multiples of; 0: 16
	MaxWorkspace   int // bytes; 0: 32 MiB
}

// AddProduct adds a launch of a product. What the spec does not use may be 0; c may be d.
func (l *List) AddProduct(p Product, a, b, c, d, bias, aux, workspace uintptr) {
	l.Add(p, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0)
	for _, at := range [...]uintptr{a, b, c, d, bias, aux, workspace} {
		l.Addr(at)
	}
}

// Filled is the spec with its defaults, or all that is wrong with it.
func (s ProductSpec) Filled() (ProductSpec, error) {
	orElse := func(v *int, otherwise int) {
		if *v == 0 {
			*v = otherwise
		}
	}
	stored := func(rows, cols int, turned bool) int {
		if turned {
			return rows
		}
		return cols
	}
	orElse(&s.LDA, stored(s.M, s.K, s.TransA))
	orElse(&s.LDB, stored(s.K, s.N, s.TransB))
	if s.InB == F32 {
		s.InB = s.In
	}
	orElse(&s.LDC, s.N)
	orElse(&s.LDD, s.N)
	orElse(&s.Batch, 1)
	orElse(&s.Align, 16)
	orElse(&s.MaxWorkspace, 32<<20)
	auxUnit := 8
	switch s.Epilogue {
	case ReLUAux, ReLUAuxBias, DReLU, DReLUBGrad:
		auxUnit = 128
	}
	orElse(&s.LDAux, (s.N+auxUnit-1)/auxUnit*auxUnit)

	var errs []error
	check := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New("a product's spec: "+text))
		}
	}
	const most = 1<<31 - 1
	check(min(s.M, s.N, s.K) > 0 && max(s.M, s.N, s.K) <= most, "M, N and K must be from 1 to 2³¹-1")
	check(s.Batch > 0 && s.Batch <= most, "Batch must be from 1 to 2³¹-1")
	check(s.In < elems && s.Out <= F16, "In must be F32, F64, BF16, F16, E4M3 or E5M2, and Out one of the first four")
	if s.In.Scaled() || s.InB.Scaled() {
		errs = append(errs, s.scaled()...)
	} else {
		check(s.InB == s.In, "InB is for factors of 8 bits")
		check(s.Out == s.In || s.Out == F32 && (s.In == BF16 || s.In == F16), "Out must be In, or F32 where In is BF16 or F16")
	}
	check(s.Arithmetic == Exact || s.Arithmetic == TF32 && s.In == F32, "Arithmetic must be Exact, or TF32 where In is F32")
	check(s.Epilogue < epilogues, "no such Epilogue")
	check(s.LDA >= stored(s.M, s.K, s.TransA) && s.LDB >= stored(s.K, s.N, s.TransB), "LDA and LDB must be at least a stored row's length")
	check(s.LDC >= s.N && s.LDD >= s.N, "LDC and LDD must be at least N")
	check(!s.Epilogue.HasAux() || s.LDAux >= s.N && s.LDAux%auxUnit == 0, "LDAux must be at least N, and a multiple of 8 (of 128 for ReLU)")
	check(min(s.StrideA, s.StrideB, s.StrideC, s.StrideD, s.StrideAux) >= 0, "strides must not be negative")
	check(s.Batch == 1 || s.StrideD >= (s.M-1)*s.LDD+s.N, "StrideD must be at least a matrix's length, or the batch's results overlap")
	switch s.Epilogue {
	case DReLUBGrad, DGELUBGrad, BGradA, BGradB:
		check(s.Batch == 1, "a bias's gradient is that of one product, so Batch must be 1")
	}
	check(s.Batch == 1 || !s.Epilogue.HasAux() || s.StrideAux > 0, "StrideAux must be given, as the products of a batch share no aux")
	check(s.Align >= s.In.Size() && s.Align >= s.Out.Size() && s.Align&(s.Align-1) == 0, "Align must be a power of two, an element's size or more")
	check(s.MaxWorkspace >= 0, "MaxWorkspace must not be negative")
	return s, errors.Join(errs...)
}

// scaled is what is wrong with a spec whose factors have scales: what NVIDIA says of them for GPUs
// of compute capability 9.x.
func (s ProductSpec) scaled() (errs []error) {
	check := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New("a product's spec: of factors of 8 bits "+text))
		}
	}
	check(s.In.Scaled() && s.InB.Scaled() && (s.In == E4M3 || s.InB == E4M3), "both must be that, and one E4M3")
	check(s.Out == BF16 || s.Out == F32 && !s.Epilogue.HasBias(), "Out must be BF16, or F32 without a bias")
	check(!s.TransA && s.TransB, "A must not be transposed, and B must")
	check((s.M|s.N|s.K|s.LDA|s.LDB|s.LDC|s.LDD)%16 == 0, "M, N, K and all strides must be multiples of 16")
	check(s.Epilogue <= ReLUBias && s.Epilogue != ReLUAux, "Epilogue must be a bias, a ReLU, both or none")
	check(s.Batch == 1, "Batch must be 1")
	check(s.ScaleA > 0 && s.ScaleB > 0 && (s.ScaleA|s.ScaleB)%16 == 0, "ScaleA and ScaleB must be multiples of 16")
	check(s.Align%16 == 0, "Align must be 16 or more")
	return errs
}
