package nccl

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/internal/search"
)

var _ Binder = cuda.Lender(nil)

// Library is NCCL, opened. It is never closed.
type Library struct {
	path    string
	version int
	at      [functionCount]uintptr // 0: it lacks the function
	words   func(code int32) string
	last    func(comm uintptr) string

	mu   sync.Mutex
	kept []*Comm
}

// ID names a communicator that is to be made. Whoever has it can join.
type ID [128]byte

// Binder makes a GPU the calling thread's own. A [cuda.Lender] is one.
type Binder interface {
	// Within makes a call on a thread whose current context is the GPU's.
	Within(call func() error) error
}

// Open opens NCCL; there is one per process.
var Open = sync.OnceValues(func() (*Library, error) { return openFirst(paths(search.This())) })

// paths is where NCCL may be.
func paths(h search.Host) []string {
	if path := h.Env("WEFT_NCCL"); path != "" {
		return []string{path}
	}
	var folders []string
	for _, name := range []string{"NCCL_HOME", "NCCL_ROOT"} { // as NCCL's own build has them
		if home := h.Env(name); home != "" {
			folders = append(folders, home+"/lib")
		}
	}
	return h.Paths("libnccl.so.2", folders...)
}

// openFirst opens the first that serves. Where none does, one that is too old says more than that
// others are not there.
func openFirst(paths []string) (*Library, error) {
	var errs []error
	for _, path := range paths {
		l, err := OpenAt(path)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	for _, err := range errs {
		if errors.Is(err, ErrOld) {
			return nil, err
		}
	}
	return nil, errs[0] // the loader's word on the name says most
}

// OpenAt opens the NCCL of a path, for those that have one of their own.
func OpenAt(path string) (*Library, error) {
	lib, err := load(path)
	if err != nil {
		return nil, without(err.Error())
	}
	l := &Library{path: path}
	var lacks []string
	for f := range functionCount {
		if l.at[f] = symbol(lib, f.String()); l.at[f] == 0 && functions[f].since == 0 {
			lacks = append(lacks, f.String())
		}
	}
	if l.at[getVersion] == 0 {
		return nil, without(path + " is not NCCL: it has no ncclGetVersion")
	}
	var v int32
	if code := result(l.at[getVersion], uintptr(unsafe.Pointer(&v))); code != success {
		return nil, without(fmt.Sprintf("%s does not tell its version: result %d", path, code))
	}
	l.version = int(v)
	if l.version < oldest || len(lacks) > 0 {
		return nil, l.tooOld(lacks)
	}
	l.words, l.last = texts(l.at[getErrorString]), lastTexts(l.at[getLastError])
	return l, nil
}

func (l *Library) tooOld(lacks []string) error {
	e := &Error{Op: "open NCCL", Err: ErrOld, Says: fmt.Sprintf("%s is version %s", l.path, Version(l.version)),
		Text: "install 2.18 or later (pip install -U nvidia-nccl-cu12), or name another libnccl.so.2 in WEFT_NCCL"}
	if len(lacks) > 0 {
		e.Says += " and has no " + strings.Join(lacks, ", ")
	}
	return e
}

// Path is where the library was found.
func (l *Library) Path() string { return l.path }

// Version is NCCL's number for its version: 21803 is 2.18.3.
func (l *Library) Version() int { return l.version }

// Has says whether the library has a function, by NCCL's name.
func (l *Library) Has(name string) bool {
	for f := range functionCount {
		if f.String() == name {
			return l.at[f] != 0
		}
	}
	return false
}

// ErrorText is what the library says of a result.
func (l *Library) ErrorText(code int) string { return l.words(int32(code)) }

// NewID makes an id, for which the process opens a port: NCCL_SOCKET_IFNAME says on which network.
func (l *Library) NewID() (id ID, err error) {
	err = l.invoke(getUniqueID, 0, uintptr(unsafe.Pointer(&id)))
	return id, err
}

// keep keeps a communicator that was not made: NCCL may write its handle later, from a thread of
// its own.
func (l *Library) keep(m *Comm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, m)
}

// invoke calls a function; comm, where it is not 0, knows the words for what goes wrong. The result
// may be that it is in progress, which is none for invoke.
//
//go:uintptrescapes
func (l *Library) invoke(f function, comm uintptr, args ...uintptr) error {
	if l.at[f] == 0 {
		return &Error{Op: f.String(), Err: ErrMissing, Says: fmt.Sprintf("%s is version %s", l.path, Version(l.version)),
			Text: minor(functions[f].since) + " or later has it"}
	}
	return l.failure(f.String(), result(l.at[f], args...), comm)
}

func (l *Library) failure(op string, code int, comm uintptr) error {
	if code == success || code == inProgress {
		return nil
	}
	return Failure(op, code, l.words(int32(code)), l.last(comm))
}
