package identity

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/quic-go/quic-go"

	"github.com/weft-project/weft/transport/internal/places"
)

// MaxRefusals bounds how many refusals are told and remembered: who keeps knocking must not fill
// memory or the log.
const MaxRefusals = 256

// Refusals tells the operator of the listening side, once per host and cause, that a peer and this
// worker are not of one job.
type Refusals struct {
	log     *slog.Logger
	crowded sync.Once

	mu   sync.Mutex
	told map[refusal]struct{}
}

type refusal struct{ host, cause string }

// NewRefusals makes the teller of a listener, or of a lane. log is where it tells.
func NewRefusals(log *slog.Logger) *Refusals {
	return &Refusals{log: log, told: map[refusal]struct{}{}}
}

// ConnContext watches a connection from its first packet; quic-go ends the context with the reason.
func (r *Refusals) ConnContext(c context.Context, info *quic.ClientInfo) (context.Context, error) {
	context.AfterFunc(c, func() {
		err := context.Cause(c)
		if refused, by := Refused(err); refused {
			r.Tell(info.RemoteAddr, by, err)
		}
	})
	return c, nil
}

// Tell says why who came from an address was refused.
func (r *Refusals) Tell(addr net.Addr, cause string, err error) {
	host := places.HostOf(addr)
	key := refusal{host, cause}
	r.mu.Lock()
	_, told := r.told[key]
	n := len(r.told)
	if !told && n < MaxRefusals {
		r.told[key] = struct{}{}
	}
	r.mu.Unlock()
	switch {
	case told || n >= MaxRefusals:
	case n == MaxRefusals-1:
		r.log.Warn("weft: refused a peer; further ones will not be reported", "peer", host, "cause", cause, "detail", err)
	default:
		r.log.Warn("weft: refused a peer", "peer", host, "cause", cause, "detail", err)
	}
}

// Crowd tells, once, that dials are refused or not answered because there are too many. It names no
// peer: addresses may be forged, and must not fill what is told.
func (r *Refusals) Crowd() {
	r.crowded.Do(func() {
		r.log.Warn("weft: too many peers dial at the same time; members of the job go first, and others are refused or not answered")
	})
}
