package workload

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weft-project/weft/internal/disttest/hostile"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// Place is where a worker joins.
type Place struct {
	Store  string // host:port of the store's server
	World  string // prefix of its keys: several worlds can follow one another in one store
	Rank   int
	Size   int
	Token  string
	Files  hostile.Files // used instead of the token where given
	Listen string        // "" for loopback
	Lanes  []string      // nil for all
}

// Join joins, with all functions of this package and those given. The store's connection ends with
// Close.
func (p Place) Join(c context.Context, more ...rpc.Function) (*Member, error) {
	id, err := p.identity()
	if err != nil {
		return nil, err
	}
	net, err := transport.New(transport.Config{Identity: id, Lanes: p.Lanes, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	st, err := store.Dial(c, store.ClientConfig{Addr: p.Store})
	if err != nil {
		return nil, err
	}
	w, err := rpc.Join(c, rpc.Config{
		Store: store.NewPrefix(p.World, st), Rank: p.Rank, WorldSize: p.Size, Network: net, Listen: p.Listen,
		Functions: append(Functions(), more...), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &Member{w, st}, nil
}

func (p Place) identity() (*transport.Identity, error) {
	if p.Files.CA != "" {
		return transport.IdentityFromFiles(transport.IdentityFiles{CA: p.Files.CA, Cert: p.Files.Cert, Key: p.Files.Key, Job: rpc.NoJob})
	}
	return transport.IdentityFromToken(p.Token, rpc.NoJob, "worker", time.Now)
}

// Member is a worker with its connection to the store.
type Member struct {
	*rpc.Worker
	store store.Store
}

// Close ends both, at once.
func (m *Member) Close() error { return errors.Join(m.Worker.Close(), m.store.Close()) }
