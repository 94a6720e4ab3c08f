package transporttest

import (
	"context"
	"testing"

	"github.com/weft-project/weft/transport/internal/wire"
)

// Answer answers one message on every stream, with a goroutine for each as a worker has.
func Answer(l wire.Link) {
	c := context.Background()
	for {
		s, err := l.Accept(c)
		if err != nil {
			return
		}
		go func() {
			defer s.Reset(nil)
			m, err := s.Recv(c, nil)
			if err != nil {
				return
			}
			_ = s.Send(c, m)
			m.Release()
		}()
	}
}

// Call makes a call of one message each way for each token that is left.
func Call(b *testing.B, l wire.Link, left chan struct{}) {
	c, cancel := context.WithCancel(context.Background())
	defer cancel()
	m := &wire.Message{Header: make([]byte, 50), End: true}
	for range left {
		s, err := l.Open(c)
		if err == nil {
			err = s.Send(c, m)
		}
		if err == nil {
			_, err = s.Recv(c, nil)
		}
		if err != nil {
			b.Error(err)
			return
		}
	}
}
