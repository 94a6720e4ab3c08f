package gpu

import (
	"fmt"
	"sync"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
)

// maxFaults bounds how many instructions have a code of their own; what comes later shares the last.
const maxFaults = 1 << 16

// faults are the codes under which kernels report bad indices. The zero value is ready.
type faults struct {
	mu    sync.Mutex
	codes map[faultAt]uint64
	at    []faultAt // code c is at c−1
	instr []kernels.Instr
}

// faultAt is an instruction by its text: alone, or at a place of a routine.
type faultAt struct {
	text string
	at   int // −1: alone
}

// code is what an instruction reports under, never 0. The same instruction has the same one again.
func (f *faults) code(i kernels.Instr, at int) uint64 {
	key := faultAt{faultText(i), at}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.codes[key]; c != 0 {
		return c
	}
	if len(f.at) == maxFaults {
		return maxFaults
	}
	if len(f.at) == maxFaults-1 {
		key = faultAt{"an instruction", -1}
	}
	if f.codes == nil {
		f.codes = map[faultAt]uint64{}
	}
	f.at, f.instr = append(f.at, key), append(f.instr, i)
	f.codes[key] = uint64(len(f.at))
	return uint64(len(f.at))
}

// faultText names an instruction. An optimizer's step counter and learning rate would make each step another one.
func faultText(i kernels.Instr) string {
	if o, ok := i.(kernels.OnRows); ok {
		if u, ok := o.Of.(kernels.Update); ok {
			return fmt.Sprintf("OnRows(%.40s)", string(u.Rule))
		}
	}
	return i.String()
}

// explain is the error of a fault, as if the instruction had found it on the host.
func (f *faults) explain(x cuda.Fault) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	index := &kernels.IndexError{Instr: "an instruction", ID: x.Value, At: int(x.At), N: int(x.N)}
	if x.Code == 0 || x.Code > uint64(len(f.at)) {
		return index
	}
	key := f.at[x.Code-1]
	index.Instr = key.text
	if key.at < 0 {
		return index
	}
	return &kernels.CallError{At: key.at, Instr: f.instr[x.Code-1], Err: index}
}
