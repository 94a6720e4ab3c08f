package gpu

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/site"
	"github.com/weft-project/weft/kernels"
)

// maxFaults bounds how many instructions have a code of their own; what comes later shares the
// last.
const maxFaults = 1 << 16

// faults are the codes under which kernels report bad indices: the GPU's [cuda.Watcher]. The zero
// value is ready.
type faults struct {
	mu    sync.Mutex
	codes map[faultAt]uint64
	at    []faultAt // code c is at c−1
	instr []kernels.Instr
	calls []call // the latest new ones last
	begun int    // looks at the record
}

// faultAt is an instruction by its text and its operands: alone, or at a place of a routine.
type faultAt struct {
	text string
	in   string
	at   int // −1: alone
}

// code is what an instruction reports under, never 0. The same instruction has the same one again.
func (f *faults) code(i kernels.Instr, in []kernels.Type, at int) uint64 {
	key := faultAt{faultText(i), fmt.Sprint(in), at}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.codes[key]; c != 0 {
		return c
	}
	if len(f.at) == maxFaults {
		return maxFaults
	}
	if len(f.at) == maxFaults-1 {
		key = faultAt{"an instruction", "", -1}
	}
	if f.codes == nil {
		f.codes = map[faultAt]uint64{}
	}
	f.at, f.instr = append(f.at, key), append(f.instr, i)
	f.codes[key] = uint64(len(f.at))
	return uint64(len(f.at))
}

// faultText names an instruction. An optimizer's step counter and learning rate would make each
// step another one.
func faultText(i kernels.Instr) string {
	if o, ok := i.(kernels.OnRows); ok {
		if u, ok := o.Of.(kernels.Update); ok {
			return fmt.Sprintf("OnRows(%.40s)", string(u.Rule))
		}
	}
	return i.String()
}

// asked is a sequence that can meet a bad index: what its instructions report under.
type asked struct{ codes []uint64 }

// call is a stack on which a sequence was run.
type call struct {
	of    *asked
	depth int
	stack [callDepth]uintptr
	begun int // looks, before the last run
}

const (
	callDepth = 32 // a user is no further away
	lastCalls = 64
)

// note remembers who runs a sequence, before it does.
func (f *faults) note(a *asked) {
	var stack [callDepth]uintptr
	depth := runtime.Callers(3, stack[:])
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.calls {
		if c := &f.calls[k]; c.of == a && c.depth == depth && c.stack == stack {
			c.begun = f.begun
			return
		}
	}
	if len(f.calls) == lastCalls {
		f.calls = slices.Delete(f.calls, 0, 1)
	}
	f.calls = append(f.calls, call{a, depth, stack, f.begun})
}

// Begin counts a look at the record.
func (f *faults) Begin() (number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun++
	return f.begun
}

// Clean forgets the runs before a look that found nothing.
func (f *faults) Clean(number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = slices.DeleteFunc(f.calls, func(c call) bool { return c.begun < number })
}

// lines are where the user asked for what reports under a code, as far as is known, the latest
// first.
func (f *faults) lines(code uint64) (at []string) {
	for _, c := range slices.Backward(f.calls) {
		if !slices.Contains(c.of.codes, code) {
			continue
		}
		file, line := site.Outside(c.stack[:c.depth])
		if text := fmt.Sprintf("%s:%d", file, line); file != "" && !slices.Contains(at, text) {
			at = append(at, text)
		}
	}
	return at
}

// Explain is the error of a fault, as if the instruction had found it on the host, and where the
// user asked for that.
func (f *faults) Explain(x gpumem.Fault) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	called := ""
	if at := f.lines(x.Code); len(at) > 0 {
		called = ", called at " + strings.Join(at, " or ")
	}
	return fmt.Errorf("found only now, in work that was asked for before%s: %w", called, f.cause(x))
}

// cause is the error without who asked.
func (f *faults) cause(x gpumem.Fault) error {
	index := &kernels.IndexError{Instr: "an instruction", ID: x.Value, At: int(x.At), N: int(x.N)}
	if x.Code == 0 || x.Code > uint64(len(f.at)) {
		return index
	}
	key, i := f.at[x.Code-1], f.instr[x.Code-1]
	index.Instr = key.text
	of := i
	if n, ok := of.(kernels.Narrow); ok {
		of = n.Of
	}
	switch of := of.(type) { // of some rows of many
	case kernels.CrossEntropy:
		index.At += of.First
	case kernels.CrossEntropyGrad:
		index.At += of.First
	}
	if key.at < 0 {
		return index
	}
	return &kernels.CallError{At: key.at, Instr: i, Err: index}
}
