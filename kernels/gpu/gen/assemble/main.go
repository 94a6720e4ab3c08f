// Command assemble has NVIDIA's assembler check the kernels that package gen writes, for random cases of every instruction:
//
//	go run ./kernels/gpu/gen/assemble -ptxas /usr/local/cuda/bin/ptxas
//
// With -v it prints what the assembler says of registers.
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

	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu/gen"
	"github.com/weft-project/weft/kernels/kerneltest"
)

func main() {
	log.SetFlags(0)
	ptxas := flag.String("ptxas", "ptxas", "the assembler")
	archs := flag.String("arch", "sm_75,sm_90", "what to assemble for")
	n := flag.Int("n", 20, "cases per kind of instruction")
	verbose := flag.Bool("v", false, "print what the assembler says")
	flag.Parse()
	ks, err := sample(*n)
	if err == nil {
		err = assemble(*ptxas, strings.Split(*archs, ","), ks, *verbose)
	}
	if err != nil {
		log.Fatal("assemble: ", err)
	}
}

// sample writes the kernels of random cases.
func sample(n int) (ks []gen.Kernel, err error) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, family := range kerneltest.Families() {
		for range n {
			i, in := kerneltest.Case(r, family)
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
