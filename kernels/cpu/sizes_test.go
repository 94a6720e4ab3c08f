//go:build !race

package cpu_test

import (
	"testing"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
)

// The race detector makes large values several times slower; what it may find is there in smaller
// ones, too.

func TestInstructionsOfSizesAroundThresholdsAgreeWithTheirDefinitions(t *testing.T) {
	kerneltest.RunSizes(t, device.Host())
}
