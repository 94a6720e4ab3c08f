package mux

import (
	"context"
	"fmt"
	"sync"

	"github.com/weft-project/weft/transport/internal/wire"
)

// budget bounds how many bytes of tensors are being received.
type budget struct {
	total int64

	mu   sync.Mutex
	used int64
	bell chan struct{} // closed when there is more; made by who waits
}

// take waits for n bytes.
func (b *budget) take(c context.Context, n int64) error {
	if n > b.total {
		return wire.FrameErr("payload", fmt.Sprintf("at most %d bytes, as MaxPeerBytes says", b.total), "%d", n)
	}
	for {
		b.mu.Lock()
		if b.used+n <= b.total {
			b.used += n
			b.mu.Unlock()
			return nil
		}
		if b.bell == nil {
			b.bell = make(chan struct{})
		}
		bell := b.bell
		b.mu.Unlock()
		select {
		case <-bell:
		case <-c.Done():
			return c.Err()
		}
	}
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.bell != nil {
		close(b.bell)
		b.bell = nil
	}
}
