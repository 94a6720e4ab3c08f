package peers_test

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/parallel/internal/peers"
	"github.com/weft-project/weft/transport/simnet"
)

// TestARankThatHasFailedMayEndAtOnceAndAllOthersHaveHeardWhy has what one rank says to another
// arrive late, each time another one.
func TestARankThatHasFailedMayEndAtOnceAndAllOthersHaveHeardWhy(t *testing.T) {
	full := errors.New("disk full")
	for seed := range uint64(soak.Cases(50)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			size := 2 + r.IntN(4)
			bad := r.IntN(size)
			ws := rpctest.World(t, simnet.New(simnet.Config{MaxDelay: time.Millisecond, Seed: seed, Logger: slog.New(slog.DiscardHandler)}), size)
			for rank, err := range rpctest.Attempt(size, func(rank int) error {
				g, err := collective.Open(t.Context(), ws[rank], "g")
				if err != nil {
					return err
				}
				if rank != bad {
					return errors.Join(peers.Outcome(t.Context(), g, nil), g.Close())
				}
				return errors.Join(peers.Outcome(t.Context(), g, full), ws[rank].Close(), g.Close())
			}) {
				var failure *peers.FailureError
				require.ErrorAs(t, err, &failure, "seed %d, rank %d", seed, rank)
				require.EqualError(t, failure, (&peers.FailureError{Rank: bad, Worker: ws[bad].Name(), Text: full.Error()}).Error())
				require.EqualError(t, err, failure.Error())
				require.Equal(t, rank == bad, errors.Is(err, full))
			}
		})
	}
}
