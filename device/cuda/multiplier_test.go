package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
)

func TestAProductsSpecIsFilledWithDenseMatrices(t *testing.T) {
	s, err := cuda.ProductSpec{M: 2, N: 3, K: 5, TransA: true, Epilogue: cuda.ReLUAux}.Filled()
	require.NoError(t, err)
	require.Equal(t, cuda.ProductSpec{M: 2, N: 3, K: 5, TransA: true, Epilogue: cuda.ReLUAux, LDA: 2, LDB: 3, LDC: 3, LDD: 3, LDAux: 128,
		Batch: 1, Align: 16, MaxWorkspace: 32 << 20}, s)
	s, err = cuda.ProductSpec{M: 2, N: 3, K: 5, TransB: true, Epilogue: cuda.GELUAux}.Filled()
	require.NoError(t, err)
	require.Equal(t, [3]int{5, 5, 8}, [3]int{s.LDA, s.LDB, s.LDAux})
	again, err := s.Filled()
	require.NoError(t, err)
	require.Equal(t, s, again)
}

func TestABadProductIsRefusedWithAllThatIsWrong(t *testing.T) {
	_, err := cuda.ProductSpec{M: 0, N: 3, K: 5, LDA: 2, In: cuda.F64, Out: cuda.F32, Arithmetic: cuda.TF32}.Filled()
	for _, text := range []string{"M, N and K", "Out must be In", "TF32 where", "LDA"} {
		require.ErrorContains(t, err, text)
	}
	good := cuda.ProductSpec{M: 4, N: 4, K: 4}
	eights := func(s *cuda.ProductSpec) {
		*s = cuda.ProductSpec{M: 16, N: 32, K: 48, In: cuda.E4M3, TransB: true, ScaleA: 1024, ScaleB: 2048}
	}
	right := good
	eights(&right)
	right, err = right.Filled()
	require.NoError(t, err)
	require.Equal(t, cuda.E4M3, right.InB)
	for text, spoil := range map[string]func(*cuda.ProductSpec){
		"both must be":           func(s *cuda.ProductSpec) { eights(s); s.In = cuda.BF16; s.InB = cuda.E4M3 },
		"and one E4M3":           func(s *cuda.ProductSpec) { eights(s); s.In = cuda.E5M2 },
		"F32 without a bias":     func(s *cuda.ProductSpec) { eights(s); s.Epilogue = cuda.Bias },
		"A must not be":          func(s *cuda.ProductSpec) { eights(s); s.TransA = true },
		"and B must":             func(s *cuda.ProductSpec) { eights(s); s.TransB = false },
		"all strides must be":    func(s *cuda.ProductSpec) { eights(s); s.K = 40 },
		"both or none":           func(s *cuda.ProductSpec) { eights(s); s.Epilogue = cuda.ReLUAux },
		"8 bits Batch must be 1": func(s *cuda.ProductSpec) { eights(s); s.Batch, s.StrideD = 2, 512 },
		"ScaleA and ScaleB":      func(s *cuda.ProductSpec) { eights(s); s.ScaleB = 8 },
		"Align must be 16":       func(s *cuda.ProductSpec) { eights(s); s.Align = 8 },
		"InB is for":             func(s *cuda.ProductSpec) { s.InB = cuda.BF16 },
		"Batch must be from":     func(s *cuda.ProductSpec) { s.Batch = -1 },
		"Out one of the":         func(s *cuda.ProductSpec) { s.In, s.Out = 9, 9 },
		"no such Epilogue":       func(s *cuda.ProductSpec) { s.Epilogue = 99 },
		"LDC and LDD":            func(s *cuda.ProductSpec) { s.LDD = 3 },
		"LDAux must be":          func(s *cuda.ProductSpec) { s.Epilogue, s.LDAux = cuda.DReLU, 64 },
		"strides must not":       func(s *cuda.ProductSpec) { s.StrideA = -1 },
		"StrideD must":           func(s *cuda.ProductSpec) { s.Batch, s.StrideD = 2, 15 },
		"Batch must be 1":        func(s *cuda.ProductSpec) { s.Batch, s.StrideD, s.Epilogue = 2, 16, cuda.BGradA },
		"StrideAux must":         func(s *cuda.ProductSpec) { s.Batch, s.StrideD, s.Epilogue = 2, 16, cuda.GELUAux },
		"Align must":             func(s *cuda.ProductSpec) { s.Align = 24 },
		"MaxWorkspace must not":  func(s *cuda.ProductSpec) { s.MaxWorkspace = -1 },
	} {
		s := good
		spoil(&s)
		_, err := s.Filled()
		require.ErrorContains(t, err, text)
	}
}
