package gputest

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/stillgpu"
)

var rewrite = flag.Bool("write-texts", false, "write the texts of the program's generated kernels anew")

const (
	texts = "kernels/gpu/internal/ahead/testdata" // what machine code is made of
	entry = "\n.visible .entry weft_"             // how a generated kernel begins; its number and its body follow
)

// Compiles runs a program on GPUs of each generation that there is machine code for, with a library
// and without, and fails where the driver would have had to compile a kernel. With -write-texts the
// texts of the kernels that were generated are written to the file of that name.
func Compiles(t *testing.T, name string, run func(t *testing.T, open func() cuda.Driver)) {
	bodies := map[string]bool{}
	for _, arch := range []int{80, 90} {
		for _, library := range []bool{false, true} {
			t.Run(fmt.Sprintf("sm_%d, library %v", arch, library), func(t *testing.T) {
				var mu sync.Mutex
				var all []*stillgpu.Driver
				run(t, func() cuda.Driver {
					d, driver := stillgpu.Config{Arch: arch, Library: library, Refuses: *rewrite}.New()
					mu.Lock()
					defer mu.Unlock()
					all = append(all, d)
					return driver
				})
				codes := 0
				for _, d := range all {
					compiled, taken := d.Loaded()
					codes += taken
					for _, text := range compiled {
						for _, part := range strings.Split(text, entry)[1:] {
							bodies[strings.TrimLeft(part, "0123456789")] = true
						}
					}
					if !*rewrite {
						require.Empty(t, compiled, "the driver would compile these: go test -write-texts here, then go run ./kernels/gpu/internal/cu/build")
					}
				}
				require.Equal(t, !*rewrite, codes > 0)
			})
		}
	}
	if *rewrite {
		require.NoError(t, write(name, slices.Sorted(maps.Keys(bodies))))
	}
}

// write writes kernels to a file of the repository that this process runs in.
func write(name string, bodies []string) error {
	root, err := filepath.Abs(".")
	for err == nil && root != filepath.Dir(root) {
		if _, missing := os.Stat(filepath.Join(root, "go.mod")); missing == nil {
			break
		}
		root = filepath.Dir(root)
	}
	var b strings.Builder
	for k, body := range bodies {
		fmt.Fprintf(&b, "%s%d%s", entry, k, body)
	}
	return errors.Join(err, os.WriteFile(filepath.Join(root, texts, name+".ptx"), []byte(b.String()), 0o600))
}
