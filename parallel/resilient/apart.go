package resilient

import (
	"sync/atomic"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
)

// parting copies the values of a snapshot that is kept, so that the next step overwrites the
// member's own as ever. A step that has to have new memory for its values takes several times as
// long; the copies are made while rows are computed. Where a step comes before they are, it has new
// memory for the rest.
type parting struct {
	stop atomic.Bool
	done chan struct{}
}

// part begins to copy what lies on the host.
func part(k *snapshot) *parting {
	p := &parting{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for i := range k.tensors {
			if !p.copy(k, i) {
				return
			}
		}
	}()
	return p
}

// copy gives a snapshot a tensor of its own. It says whether to go on.
func (p *parting) copy(k *snapshot, i int) bool {
	b, err := k.acquire(i)
	if err != nil {
		return false // who asks for it hears why
	}
	defer b.Release() //nolint:errcheck // ours
	from, err := b.Host()
	if err != nil {
		return true
	}
	to, err := device.Host().Alloc(k.entries[i].Bytes)
	if err != nil {
		return false
	}
	mem, err := to.Host()
	for at := 0; at < len(mem) && err == nil; at += piece {
		if p.stop.Load() {
			host.Release(to)
			return false
		}
		copy(mem[at:min(at+piece, len(mem))], from[at:])
	}
	k.replace(i, to)
	return true
}

// settle copies no more.
func (p *parting) settle() {
	if p != nil {
		p.stop.Store(true)
		<-p.done
	}
}
