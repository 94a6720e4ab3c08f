//go:build deps

package weft

import (
	_ "github.com/chewxy/hm"
	_ "github.com/ebitengine/purego"
	_ "github.com/fxamacker/cbor/v2"
	_ "github.com/quic-go/quic-go"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/spf13/cobra"
	_ "github.com/stretchr/testify/require"
	_ "go4.org/unsafe/assume-no-moving-gc"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "gonum.org/v1/gonum/blas/gonum"
	_ "gonum.org/v1/plot"
	_ "gonum.org/v1/plot/plotter"
	_ "gonum.org/v1/plot/vg"
	_ "gorgonia.org/gorgonia"
	_ "gorgonia.org/tensor"
)
