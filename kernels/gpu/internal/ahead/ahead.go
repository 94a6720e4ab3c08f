package ahead

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"

	"github.com/weft-project/weft/kernels/gpu/internal/cu"
	"github.com/weft-project/weft/kernels/gpu/internal/gen"
)

// archives are one for each of [cu.Archs], by the name that [cu.CubinArchive] gives.
//
//go:embed *.zip
var archives embed.FS

// Shelf is the machine code for one GPU. The zero value is empty. It is safe for concurrent use.
type Shelf struct{ z *zip.Reader }

// Open gives the machine code for GPUs of some compute capability. The shelf is empty where there
// is none.
func Open(arch int) (s Shelf) {
	a, ok := cu.CubinArch(arch)
	if !ok {
		return s
	}
	b, err := archives.ReadFile(cu.CubinArchive(a))
	if err != nil {
		return s
	}
	if s.z, err = zip.NewReader(bytes.NewReader(b), int64(len(b))); err != nil {
		s.z = nil
	}
	return s
}

// Cubin is a kernel as a module of machine code, in which it is called as in [Text]; nil where
// there is none.
func (s Shelf) Cubin(k gen.Kernel) []byte {
	if s.z == nil {
		return nil
	}
	cubin, err := cu.Entry(s.z, Name(k))
	if err != nil {
		return nil
	}
	return cubin
}

// Name is what the kernel's machine code is called in an archive.
func Name(k gen.Kernel) string { return fmt.Sprintf("%x.cubin", sha256.Sum256([]byte(k.Body))) }

// Text is the PTX that a kernel's machine code is made of.
func Text(k gen.Kernel) (ptx, name string) {
	ptx, names := gen.Module([]gen.Kernel{k})
	return ptx, names[0]
}
