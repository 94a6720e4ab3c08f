package main

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestWorkersLearnApart(t *testing.T) {
	said := regexp.MustCompile(`loss (\d\.\d+)`).FindAllStringSubmatch(exampletest.Job(t, 2), -1)
	require.Len(t, said, 2)
	for _, s := range said {
		loss, err := strconv.ParseFloat(s[1], 64)
		require.NoError(t, err)
		require.Less(t, loss, 0.4, "a tenth of the sums' variance")
	}
}
