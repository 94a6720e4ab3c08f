//go:build goexperiment.simd && amd64

package gemm

import (
	"flag"
	"testing"

	"github.com/weft-project/weft/internal/twintest"
)

var update = flag.Bool("update", false, "write the tiles of other vectors anew")

func TestTheTilesOfAllVectorsAreOneTile(t *testing.T) { twintest.Vectors(t, "tile", *update) }
