package link

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/places"
	"github.com/weft-project/weft/transport/internal/quicstream"
	"github.com/weft-project/weft/transport/internal/wire"
)

// A dial that a crowd refuses is made again, after some time that doubles. All tries together last
// no longer than one that nobody answers. Where the peer does not answer, and has been crowded a
// moment ago, it rather is so still than gone.
const (
	retryFirst = 10 * time.Millisecond
	retryMost  = 320 * time.Millisecond
	crowdLasts = 5 * time.Second
	crowdsMost = 1 << 10 // peers
)

func (n *network) Dial(c context.Context, addr string) (wire.Link, error) {
	until, cancel := context.WithTimeout(c, lane.HandshakeTimeout)
	defer cancel()
	link, err := n.dialOnce(c, addr)
	for wait := retryFirst; errors.Is(err, wire.ErrBusy) && until.Err() == nil; wait = min(2*wait, retryMost) {
		n.crowds.saw(time.Now(), addr)
		select {
		case <-time.After(wait/2 + rand.N(wait)):
			link, err = n.dialOnce(until, addr)
		case <-until.Done():
		}
	}
	var e *wire.Error
	switch {
	case err == nil:
		n.known.remember(places.AccountOf(link.Conn.RemoteAddr()))
		return link, nil
	case errors.As(err, &e) && errors.Is(e.Err, wire.ErrUnreachable) && n.crowds.lately(time.Now(), addr):
		e.Err = wire.ErrBusy
	}
	return nil, err
}

// crowded says whether a peer refused a dial for too many others. A connection that is closed
// before it is set up says no more than that it was closed.
func crowded(err error) bool {
	var (
		broken *quic.TransportError
		app    *quic.ApplicationError
	)
	switch {
	case errors.As(err, &broken):
		return broken.Remote && (broken.ErrorCode == quic.ConnectionRefused || broken.ErrorCode == quic.ApplicationErrorErrorCode)
	case errors.As(err, &app):
		return app.Remote && app.ErrorCode == quicstream.CodeBusy
	}
	return false
}

// crowds remembers which peers refused a dial lately. It is safe for concurrent use.
type crowds struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

func newCrowds() *crowds { return &crowds{seen: map[string]time.Time{}} }

func (s *crowds) saw(now time.Time, addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, at := range s.seen {
		if now.Sub(at) > crowdLasts {
			delete(s.seen, a)
		}
	}
	if len(s.seen) < crowdsMost {
		s.seen[addr] = now
	}
}

func (s *crowds) lately(now time.Time, addr string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.seen[addr]
	return ok && now.Sub(at) <= crowdLasts
}
