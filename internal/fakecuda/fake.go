//go:build gpu && linux

package fakecuda

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

//go:embed *.c *.h
var sources embed.FS

// Machine runs kernels.
type Machine interface {
	// Load reads PTX text. The error's text is the log of the driver's compiler.
	Load(ptx string) (Image, error)
}

// Image is what a Machine made of PTX.
type Image interface {
	// Find finds a kernel; nil where there is none.
	Find(name string) Kernel
}

// Kernel is a kernel of an Image.
type Kernel interface {
	Params() []Param
	Shared() int // bytes that it has beside what a launch gives it
	// Run runs a launch; an error is a fault, which loses the GPU.
	Run(l Launch) error
}

// Param says where a parameter lies in a launch's arguments.
type Param struct{ At, Size int }

// Launch is what a kernel is run with. Memory is all that the GPU has; none of it is to be kept.
type Launch struct {
	Grid, Block [3]uint32
	Shared      int
	Args        []byte
	Memory      []Piece
}

// Piece is a piece of the GPU's memory that begins at an address.
type Piece struct {
	At  uintptr
	Mem []byte
}

// Library is the fake, opened by this process.
type Library struct {
	set    func(what string, value int64) int32
	mend   func()
	live   func() int64
	queues func() int64
	plain  func() int64
	plant  func(text string) int32
	hits   func() int64
	met    func() int64
	left   func(kind int32) int64
	calls  func(call int32) int64
	answer func(uintptr)

	mu      sync.Mutex
	machine Machine
	images  map[uint64]Image
	kernels map[uint64]Kernel
	next    uint64
}

// Build compiles the fake into a folder.
func Build(dir string) (path string, err error) {
	if err := os.CopyFS(dir, sources); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "names.h"), []byte(names()), 0o600); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "libcuda.so.1")
	args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-shared", "-fPIC", "-o", path}
	files, err := fs.Glob(sources, "*.c")
	if err != nil {
		return "", err
	}
	for _, name := range files {
		args = append(args, filepath.Join(dir, name))
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	out, err := exec.Command(cc, append(args, "-lpthread", "-lm")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compiling the fake driver: %w: %s", err, out)
	}
	return path, nil
}

// Open builds the fake in a folder and has package native open it, and nothing else, in this
// process and in those it starts. Package native must not have been asked for anything before.
func Open(dir string) (*Library, error) {
	path, err := Build(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"LIBCUDA_PATH", "WEFT_CUBLASLT"} {
		if err := os.Setenv(name, path); err != nil {
			return nil, err
		}
	}
	return Opened()
}

// Opened is the fake that LIBCUDA_PATH names, which a process before this one built.
func Opened() (*Library, error) {
	lib, err := purego.Dlopen(os.Getenv("LIBCUDA_PATH"), purego.RTLD_NOW)
	if err != nil {
		return nil, err
	}
	l := &Library{images: map[uint64]Image{}, kernels: map[uint64]Kernel{}}
	purego.RegisterLibFunc(&l.set, lib, "weft_fake_set")
	purego.RegisterLibFunc(&l.mend, lib, "weft_fake_mend")
	purego.RegisterLibFunc(&l.live, lib, "weft_fake_live")
	purego.RegisterLibFunc(&l.queues, lib, "weft_fake_queues")
	purego.RegisterLibFunc(&l.plain, lib, "weft_fake_uncached")
	purego.RegisterLibFunc(&l.plant, lib, "weft_fake_plant")
	purego.RegisterLibFunc(&l.met, lib, "weft_fake_met")
	purego.RegisterLibFunc(&l.hits, lib, "weft_fake_hits")
	purego.RegisterLibFunc(&l.left, lib, "weft_fake_left")
	purego.RegisterLibFunc(&l.calls, lib, "weft_fake_calls")
	purego.RegisterLibFunc(&l.answer, lib, "weft_fake_answer")
	return l, nil
}

// Set changes how the fake behaves: "memory" (bytes of a GPU), "devices" (up to 2), "fault" (what
// the next kernel fails with), "refuse" (what the next launch is refused with), "null" (launches do
// nothing, at once), "old" (a driver of CUDA 12.0), "peers" (the GPUs can access one another),
// "arch" (their compute capability, times ten), "unmapped" (a driver that encodes no maps of
// tensors).
func (l *Library) Set(what string, value int) {
	if l.set(what, int64(value)) != 0 {
		panic("the fake driver has no " + what)
	}
}

// Mend brings lost GPUs back.
func (l *Library) Mend() { l.mend() }

// Live is how many allocations, pinned pieces and streams there are.
func (l *Library) Live() int { return int(l.live()) }

// Queues is from how many queues a GPU takes work, as the environment said when the driver was
// opened.
func (l *Library) Queues() int { return int(l.queues()) }

// Cached says that the driver keeps what it compiles, as the environment said when it was opened.
func (l *Library) Cached() bool { return l.plain() == 0 }

// Use has a machine run the kernels that are loaded from now on. It is called once.
func (l *Library) Use(m Machine) {
	l.machine = m
	l.answer(purego.NewCallback(func(q *question) uintptr { return uintptr(l.asked(q)) }))
}

// question is the C structure of this name.
type question struct {
	what           int64
	module, kernel uint64
	image          *byte
	_              uint64 // the image's length
	name           *byte
	grid, block    [3]uint32
	shared         uint64
	args           *byte
	argsLen        uint64
	memory         *piece
	pieces         uint64

	id                            uint64
	params, threads, staticShared int64
	paramAt, paramN               [64]uint64
	log                           [1024]byte
}

type piece struct {
	at, n uint64
	host  *byte
}

func text(at *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(at), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(at, n))
}

// asked answers with a result of the driver.
func (l *Library) asked(q *question) int {
	l.mu.Lock()
	image, kernel := l.images[q.module], l.kernels[q.kernel]
	l.mu.Unlock()
	switch q.what {
	case 1: // load
		m, err := l.machine.Load(text(q.image))
		if err != nil {
			copy(q.log[:len(q.log)-1], err.Error())
			return 218
		}
		l.mu.Lock()
		l.next++
		q.id, l.images[l.next] = l.next, m
		l.mu.Unlock()
	case 2: // find
		k := image.Find(text(q.name))
		if k == nil {
			return 500
		}
		q.threads, q.staticShared = 1024, int64(k.Shared())
		for _, p := range k.Params() {
			q.paramAt[q.params], q.paramN[q.params] = uint64(p.At), uint64(p.Size)
			q.params++
		}
		l.mu.Lock()
		l.next++
		q.id, l.kernels[l.next] = l.next, k
		l.mu.Unlock()
	case 3: // run
		r := Launch{Grid: q.grid, Block: q.block, Shared: int(q.shared), Args: unsafe.Slice(q.args, q.argsLen)}
		for _, p := range unsafe.Slice(q.memory, q.pieces) {
			r.Memory = append(r.Memory, Piece{uintptr(p.at), unsafe.Slice(p.host, p.n)})
		}
		if err := kernel.Run(r); err != nil {
			fmt.Fprintln(os.Stderr, "fake GPU:", err)
			return 700
		}
	case 4: // unload
		l.mu.Lock()
		delete(l.images, q.module)
		l.mu.Unlock()
	}
	return 0
}
