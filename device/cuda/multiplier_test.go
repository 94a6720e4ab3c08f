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
	for text, spoil := range map[string]func(*cuda.ProductSpec){
		"Batch must be from":    func(s *cuda.ProductSpec) { s.Batch = -1 },
		"In and Out":            func(s *cuda.ProductSpec) { s.In, s.Out = 9, 9 },
		"no such Epilogue":      func(s *cuda.ProductSpec) { s.Epilogue = 99 },
		"LDC and LDD":           func(s *cuda.ProductSpec) { s.LDD = 3 },
		"LDAux must be":         func(s *cuda.ProductSpec) { s.Epilogue, s.LDAux = cuda.DReLU, 64 },
		"strides must not":      func(s *cuda.ProductSpec) { s.StrideA = -1 },
		"StrideD must":          func(s *cuda.ProductSpec) { s.Batch, s.StrideD = 2, 15 },
		"Batch must be 1":       func(s *cuda.ProductSpec) { s.Batch, s.StrideD, s.Epilogue = 2, 16, cuda.BGradA },
		"StrideAux must":        func(s *cuda.ProductSpec) { s.Batch, s.StrideD, s.Epilogue = 2, 16, cuda.GELUAux },
		"Align must":            func(s *cuda.ProductSpec) { s.Align = 24 },
		"MaxWorkspace must not": func(s *cuda.ProductSpec) { s.MaxWorkspace = -1 },
	} {
		s := good
		spoil(&s)
		_, err := s.Filled()
		require.ErrorContains(t, err, text)
	}
}
