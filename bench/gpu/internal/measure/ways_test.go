package measure

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/kernels"
)

func TestAWayIsToldWithItsReason(t *testing.T) {
	require.Equal(t, "product by library", wayText(kernels.Way{Work: "product", By: "library", Times: 3}))
	lacks := kernels.Way{Work: "epilogue", By: "kernels", Why: "the library lacks it", Last: "cuBLASLt says not supported"}
	require.Equal(t, "epilogue by kernels, as the library lacks it (cuBLASLt says not supported)", wayText(lacks))
	lacks.Last = strings.Repeat("é", 1000)
	require.Less(t, len(wayText(lacks)), 250)
}
