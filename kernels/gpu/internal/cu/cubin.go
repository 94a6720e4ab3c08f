package cu

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
)

// Archs are the compute capabilities for which there are cubins: machine code, which a driver need
// not compile. Each runs on GPUs of the same generation, from that one on.
func Archs() []int { return []int{80, 90} }

// CubinArchive is the name of the archive of the cubins for a compute capability.
func CubinArchive(arch int) string { return fmt.Sprintf("sm_%d.zip", arch) }

// HopperArchive is the name of the archive of the cubins that run on compute capability 9.0 and
// nowhere else, of modules that ask for that.
const HopperArchive = "sm_90a.zip"

// Hopper says whether PTX is for compute capability 9.0 and no other.
func Hopper(ptx []byte) bool { return bytes.Contains(ptx, []byte("\n.target sm_90a")) }

// CubinArch is the one of [Archs] whose machine code runs on a GPU of some compute capability.
func CubinArch(arch int) (a int, ok bool) {
	for _, a := range slices.Backward(Archs()) {
		if arch/10 == a/10 && arch >= a {
			return a, true
		}
	}
	return 0, false
}

// Cubin is a module as machine code for a GPU of some compute capability; nil where there is none
// for it, or none that was made of the module's PTX.
func Cubin(name string, arch int) []byte {
	ptx := Module(name)
	a, ok := CubinArch(arch)
	if !ok || Hopper(ptx) && arch != 90 {
		return nil
	}
	archive := CubinArchive(a)
	if Hopper(ptx) {
		archive = HopperArchive
	}
	b, err := archives.ReadFile(archive)
	if err != nil {
		return nil
	}
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil
	}
	of, err := Entry(z, name+".of")
	if err != nil || !bytes.Equal(of, OfPTX(ptx)) {
		return nil
	}
	cubin, err := Entry(z, name+".cubin")
	if err != nil {
		return nil
	}
	return cubin
}

// OfPTX is what an archive has beside a cubin: it tells of what PTX that was made, also where there
// is no compiler.
func OfPTX(ptx []byte) []byte { return fmt.Appendf(nil, "%x", sha256.Sum256(ptx)) }
