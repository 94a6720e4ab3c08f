package crew

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weft-project/weft/cmd/weft/internal/reach"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// Network is by which workers are asked.
func Network(id *transport.Identity) (transport.Network, error) {
	return transport.New(transport.Config{Identity: id, Lanes: []string{transport.LaneQUIC}, Logger: slog.New(slog.DiscardHandler)})
}

// Dial connects with a job's store: with TLS, but where it has none. A plain client of one that has
// TLS would see nothing of the job.
func Dial(c context.Context, addr string, id *transport.Identity, timeout time.Duration) (st *store.Client, err error) {
	c, cancel := context.WithTimeout(c, timeout)
	defer cancel()
	cfg := store.ClientConfig{Addr: addr, Timeout: timeout, TLS: id.StoreTLS()}
	if !reach.TakesTLS(c, addr, cfg.TLS) {
		cfg.TLS = nil
	}
	return store.Dial(c, cfg)
}

// Ask asks the workers that have joined in a store: those of its latest epoch in which there are
// any, else those of the store itself; epoch is −1 then.
func Ask(c context.Context, st store.Store, n transport.Network, timeout time.Duration) (all []rpc.Observed, epoch int, err error) {
	epochs, err := elastic.Epochs(c, st)
	if err != nil && !errors.Is(err, store.ErrUnsupported) {
		return nil, 0, err
	}
	for _, epoch := range append(epochs, -1) {
		part := st
		if epoch >= 0 {
			part = elastic.EpochStore(st, epoch)
		}
		all, err := rpc.Observe(c, part, n, timeout)
		if err == nil || !errors.Is(err, rpc.ErrNoJob) {
			return all, epoch, err
		}
	}
	return nil, 0, rpc.ErrNoJob
}
