package resilient

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sync"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
)

// snapshot is the state of a member before a step. Its tensors share the values of that moment.
type snapshot struct {
	names   []string
	tensors []*autodiff.Tensor
	meta    optim.Meta
	extra   []byte // the program's own

	once sync.Once
	made manifest
	err  error
}

// manifest is what a snapshot holds, for who gets it in pieces.
type manifest struct {
	Entries []entry
	Meta    optim.Meta
	Extra   []byte
	Digest  string
}

// entry is a tensor of a snapshot.
type entry struct {
	Name, DType string
	Shape       []int
	Bytes       int
	Sums        []uint32 // of its pieces
}

// piece is how many bytes of a tensor travel at once. A newcomer that asks for one is not kept from
// asking others, and holds up nobody for long.
const piece = 1 << 20

// pieces are how many a tensor has.
func (e entry) pieces() int { return (e.Bytes + piece - 1) / piece }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// state is this member's state now.
func (t *Team) state() (*snapshot, error) {
	s, err := t.cfg.Optimizer.State()
	if err != nil {
		return nil, err
	}
	k := &snapshot{meta: s.Meta}
	if t.cfg.Save != nil {
		if k.extra, err = t.cfg.Save(); err != nil {
			return nil, err
		}
	}
	for i, name := range t.names {
		k.names, k.tensors = append(k.names, "p:"+name), append(k.tensors, t.params[i].Detach())
	}
	for _, name := range slices.Sorted(maps.Keys(s.Tensors)) {
		k.names, k.tensors = append(k.names, "o:"+name), append(k.tensors, s.Tensors[name])
	}
	for i, x := range k.tensors {
		if err := x.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", k.names[i], err)
		}
	}
	return k, nil
}

// digest tells this member's state now from others.
func (t *Team) digest() (string, error) {
	k, err := t.state()
	if err != nil {
		return "", err
	}
	m, err := k.manifest()
	return m.Digest, err
}

// manifest lists the snapshot, with sums of all its pieces.
func (k *snapshot) manifest() (manifest, error) {
	k.once.Do(func() { k.made, k.err = k.list() })
	return k.made, k.err
}

func (k *snapshot) list() (m manifest, err error) {
	m.Meta, m.Extra = k.meta, k.extra
	for i, x := range k.tensors {
		e := entry{Name: k.names[i], DType: x.Dtype().String(), Shape: x.Shape(), Bytes: x.Type().Bytes()}
		for n := range e.pieces() {
			if err := k.withPiece(i, n, func(b []byte) { e.Sums = append(e.Sums, crc32.Checksum(b, castagnoli)) }); err != nil {
				return m, err
			}
		}
		m.Entries = append(m.Entries, e)
	}
	m.Digest = m.digest()
	return m, nil
}

// digest is of all but itself.
func (m manifest) digest() string {
	m.Digest = ""
	b, err := json.Marshal(m)
	if err != nil {
		return err.Error() // a learning rate that is not finite, on all members alike
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// withPiece gives the bytes of a piece of a tensor to fn, which does not keep them.
func (k *snapshot) withPiece(i, n int, fn func([]byte)) error {
	b, err := k.tensors[i].Acquire()
	if err != nil {
		return err
	}
	defer b.Release() //nolint:errcheck // ours
	bytes := k.tensors[i].Type().Bytes()
	lo, hi := n*piece, min((n+1)*piece, bytes)
	if b.Device() == device.Host() {
		mem, err := b.Host()
		if err == nil {
			fn(mem[lo:hi])
		}
		return err
	}
	mem := make([]byte, hi-lo)
	if err := b.Device().Download(mem, b, lo); err != nil {
		return err
	}
	fn(mem)
	return nil
}

// takeOver takes over a state that has come in pieces.
func (t *Team) takeOver(m manifest, data [][]byte) error {
	s := optim.State{Tensors: map[string]*autodiff.Tensor{}, Meta: m.Meta}
	values := map[string]*autodiff.Tensor{}
	for i, e := range m.Entries {
		x := autodiff.FromRaw(rawNames[e.DType], e.Shape, data[i])
		if err := x.Err(); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		if e.Name[:2] == "p:" {
			values[e.Name[2:]] = x
		} else {
			s.Tensors[e.Name[2:]] = x
		}
	}
	list := make([]*autodiff.Tensor, len(t.params))
	for i, name := range t.names {
		if list[i] = values[name]; list[i] == nil {
			return fmt.Errorf("%w: the state has no parameter %s", ErrDifferent, name)
		}
	}
	if err := autodiff.Assign(t.params, list); err != nil {
		return err
	}
	if err := t.cfg.Optimizer.Load(s); err != nil || t.cfg.Load == nil {
		return err
	}
	return t.cfg.Load(m.Extra)
}

// rawNames are what autodiff.FromRaw calls the dtypes.
var rawNames = map[string]string{
	device.Float32.String(): "F32", device.Float64.String(): "F64", device.Int32.String(): "I32", device.Int64.String(): "I64",
}

// digestOf tells lists apart.
func digestOf(list []string) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q", list)))
}

// keeping is states that this member keeps for newcomers. Safe for concurrent use.
type keeping struct {
	mu     sync.Mutex
	states map[uint64]*snapshot // by the step before which they are
}

func newKeeping() *keeping { return &keeping{states: map[uint64]*snapshot{}} }

// snap keeps the state of now, unless that of the step is kept already.
func (k *keeping) snap(step uint64, now func() (*snapshot, error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.states[step] != nil {
		return
	}
	if s, err := now(); err == nil { // else newcomers get it elsewhere
		k.states[step] = s
	}
}

func (k *keeping) steps() []uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.states))
}

// only forgets all states but those.
func (k *keeping) only(wanted map[uint64]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.states, func(step uint64, _ *snapshot) bool { return !wanted[step] })
}

func (k *keeping) of(step uint64) *snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.states[step]
}
