package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu/internal/gen"
)

func main() {
	log.SetFlags(0)
	ptxas := flag.String("ptxas", "ptxas", "the assembler")
	archs := flag.String("arch", "sm_75,sm_90", "what to assemble for")
	narrowArchs := flag.String("narrow", "sm_80,sm_90", "what to assemble for where operands and results are bfloat16")
	n := flag.Int("n", 20, "cases per kind of instruction")
	verbose := flag.Bool("v", false, "print what the assembler says")
	flag.Parse()
	for _, of := range []struct {
		archs  string
		narrow bool
	}{{*archs, false}, {*narrowArchs, true}} {
		ks, err := sample(*n, of.narrow)
		if err == nil {
			err = assemble(*ptxas, strings.Split(of.archs, ","), ks, *verbose)
		}
		if err != nil {
			log.Fatal("assemble: ", err)
		}
	}
}

// sample writes the kernels of random cases, and of some large ones; narrow has some operands and
// results be bfloat16.
func sample(n int, narrow bool) (ks []gen.Kernel, err error) {
	dtypes := []device.Dtype{device.Float32, device.Float64}
	if narrow {
		dtypes = []device.Dtype{device.BFloat16}
	}
	for _, d := range dtypes {
		for _, c := range large(d) {
			if narrow {
				c.Instr = narrowed(c)
			}
			code, err := c.Code()
			if err != nil {
				return nil, err
			}
			ks = append(ks, code.Kernels...)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, family := range kerneltest.Families() {
		for range n {
			i, in := kerneltest.Case(r, family)
			if narrow {
				i, in = kerneltest.Narrowed(r, i, in)
			}
			types := make([]kernels.Type, len(in))
			for k, x := range in {
				types[k] = x.Type
			}
			code, err := gen.Case{Instr: i, In: types}.Code()
			if errors.Is(err, gen.ErrUnknown) {
				continue
			}
			if err != nil {
				return nil, err
			}
			ks = append(ks, code.Kernels...)
		}
	}
	return ks, nil
}

// narrowed is the instruction of a case whose operands are bfloat16, with results of bfloat16 where
// it has floats.
func narrowed(c gen.Case) kernels.Instr {
	n := kernels.Narrow{Of: c.Instr, Outs: []bool{true}}
	if _, err := n.Infer(c.In); err != nil {
		n.Outs = nil
	}
	return n
}

// large is every function, and every kind of fold and move, over so many elements that threads take
// several each.
func large(d device.Dtype) (cases []gen.Case) {
	s := device.Shape{64, 64, 1024}
	x, row := kernels.Type{Dtype: d, Shape: s}, kernels.Type{Dtype: d, Shape: s[2:]}
	for fn := range kernels.UnaryFn(kernels.UnaryFns) {
		cases = append(cases, gen.Case{Instr: kernels.Unary{Fn: fn, C: 2}, In: []kernels.Type{x}})
	}
	for fn := range kernels.BinaryFn(kernels.BinaryFns) {
		cases = append(cases, gen.Case{Instr: kernels.Binary{Fn: fn}, In: []kernels.Type{x, row}})
	}
	for fn := range kernels.Max + 1 {
		for _, axes := range [][]int{nil, {0}, {1}, {2}, {0, 1}, {0, 2}} {
			cases = append(cases, gen.Case{Instr: kernels.Reduce{Fn: fn, Axes: axes}, In: []kernels.Type{x}})
		}
	}
	return append(cases, gen.Case{Instr: kernels.NonFinite{}, In: []kernels.Type{x}},
		gen.Case{Instr: kernels.Transpose{Perm: []int{2, 0, 1}}, In: []kernels.Type{x}},
		gen.Case{Instr: kernels.Concat{Axis: 1}, In: []kernels.Type{x, x}},
		gen.Case{Instr: kernels.Cast{To: device.Int32}, In: []kernels.Type{x}})
}

// assemble has the assembler read all kernels, for each architecture.
func assemble(ptxas string, archs []string, ks []gen.Kernel, verbose bool) error {
	dir, err := os.MkdirTemp("", "weft")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	text, _ := gen.Module(ks)
	name := filepath.Join(dir, "kernels.ptx")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return err
	}
	for _, arch := range archs {
		said, err := exec.Command(ptxas, "-v", "-arch="+arch, "-o", filepath.Join(dir, "kernels.cubin"), name).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", arch, err, said)
		}
		if verbose {
			fmt.Printf("%s", said)
		}
		fmt.Printf("%s: %d kernels\n", arch, len(ks))
	}
	return nil
}
