//go:build !gpu || gpucheck || !linux

package gpus

import (
	"errors"

	"github.com/weft-project/weft/device/cuda"
)

func openFake() (cuda.Driver, error) { return nil, errors.New("this build has no fake driver") }
