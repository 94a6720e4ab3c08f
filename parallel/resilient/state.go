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
	"github.com/weft-project/weft/parallel/internal/host"
)

// snapshot is the state of a member before a step. Its tensors share the values of that moment, or
// have copies.
type snapshot struct {
	names   []string
	entries []entry // without sums
	meta    optim.Meta
	extra   []byte   // the program's own
	parting *parting // nil where it is not kept

	mu      sync.Mutex
	tensors []*autodiff.Tensor // only their places change

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
		k.entries = append(k.entries, entry{Name: k.names[i], DType: x.Dtype().String(), Shape: x.Shape(), Bytes: x.Type().Bytes()})
	}
	return k, nil
}

// digest tells this member's state now from others.
func (t *Team) digest() (string, error) {
	k, err := t.state()
	if err != nil {
		return "", err
	}
	defer k.dropValues()
	m, err := k.manifest()
	return m.Digest, err
}

// dropValues lets go of the values: a step overwrites what nobody else holds, and needs no new
// memory.
func (k *snapshot) dropValues() { autodiff.Release(k.tensors...) }

func (k *snapshot) acquire(i int) (*device.Buffer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tensors[i].Acquire()
}

func (k *snapshot) replace(i int, by *device.Buffer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.tensors[i]
	k.tensors[i] = autodiff.Wrap(x.Type(), by, nil)
	autodiff.Release(x)
}

// manifest lists the snapshot, with sums of all its pieces.
func (k *snapshot) manifest() (manifest, error) {
	k.once.Do(func() { k.made, k.err = k.list() })
	return k.made, k.err
}

func (k *snapshot) list() (m manifest, err error) {
	m.Meta, m.Extra = k.meta, k.extra
	for i, e := range k.entries {
		for n := range e.pieces() {
			sum, err := k.sum(i, n)
			if err != nil {
				return m, err
			}
			e.Sums = append(e.Sums, sum)
		}
		m.Entries = append(m.Entries, e)
	}
	m.Digest = m.digest()
	return m, nil
}

func (k *snapshot) sum(i, n int) (uint32, error) {
	b, err := k.part(i, n)
	if err != nil {
		return 0, err
	}
	defer b.Release() //nolint:errcheck // ours
	mem, err := b.Host()
	return crc32.Checksum(mem, castagnoli), err
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

// part is a piece of a tensor, on the host: its own memory where it lies there.
func (k *snapshot) part(i, n int) (*device.Buffer, error) {
	b, err := k.acquire(i)
	if err != nil {
		return nil, err
	}
	lo, hi := n*piece, min((n+1)*piece, k.entries[i].Bytes)
	if mem, err := b.Host(); err == nil {
		return device.Foreign(mem[lo:hi], nil, func() { _ = b.Release() }), nil // ours
	}
	defer b.Release() //nolint:errcheck // ours
	return downloaded(b, lo, hi-lo)
}

// downloaded is a copy of some bytes on the host.
func downloaded(b *device.Buffer, off, n int) (*device.Buffer, error) {
	to, mem, err := host.Zeros(n)
	if err == nil {
		err = b.Device().Download(mem, b, off)
	}
	if err != nil && to != nil {
		_ = to.Release() // ours
		return nil, err
	}
	return to, err
}

// takeOver takes over a state that has come in pieces, each of whose tensors is like another one.
func (t *Team) takeOver(m manifest, like []*autodiff.Tensor, data []*device.Buffer) error {
	s := optim.State{Tensors: map[string]*autodiff.Tensor{}, Meta: m.Meta}
	values := map[string]*autodiff.Tensor{}
	for i, e := range m.Entries {
		x := autodiff.Wrap(like[i].Type(), data[i], nil)
		defer autodiff.Release(x) // see dropValues
		if data[i] = nil; x.Err() != nil {
			return fmt.Errorf("%s: %w", e.Name, x.Err())
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

// digestOf tells lists apart.
func digestOf(list []string) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q", list)))
}
