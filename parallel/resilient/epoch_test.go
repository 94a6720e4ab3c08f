package resilient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/resilient/internal/ledger"
	"github.com/weft-project/weft/rpc"
)

// pupil is a member whose epochs begin and end as a test has it.
type pupil struct {
	*Team
	model nn.Sequential
	w     *rpc.Worker
}

var few = parallel.Rows{Seed: 1, N: 50, Batch: 12}

// class is a pupil on each worker. They have the same values, unless they are apart.
func class(t *testing.T, ws []*rpc.Worker, apart bool, change func(rank int, cfg *Config)) (all []*pupil) {
	t.Helper()
	for rank, w := range ws {
		seed := uint64(0)
		if apart {
			seed = uint64(rank)
		}
		p := &pupil{model: nn.NewMLP(rand.New(rand.NewPCG(seed, 1)), autodiff.GELU, 5, 4, 3), w: w}
		opt, err := optim.NewGroups(optim.Named(optim.AdamW{LR: 0.1}, nn.Parameters(p.model)))
		require.NoError(t, err)
		cfg := Config{Params: nn.Parameters(p.model), Optimizer: opt, Logger: slog.New(slog.DiscardHandler), Bucket: 1}
		change(rank, &cfg)
		p.Team, err = newTeam(cfg)
		require.NoError(t, err)
		p.m = ledger.New(len(p.layout), true, cfg.Step)
		all = append(all, p)
		t.Cleanup(func() {
			p.moves = true
			require.NoError(t, p.detach())
			p.dropAll()
		})
	}
	return all
}

// enter has a pupil take part in an epoch, among all workers.
func (p *pupil) enter(c context.Context, epoch int, ws []*rpc.Worker, over <-chan struct{}) error {
	if err := p.leave(); err != nil {
		return err
	}
	var names []string
	for _, w := range ws {
		names = append(names, w.Name())
	}
	g, err := collective.Open(c, p.w, fmt.Sprint("epoch ", epoch), names...)
	if err != nil {
		return err
	}
	p.over = over
	return p.attach(c, g)
}

// leave ends an epoch, as Each does.
func (p *pupil) leave() error {
	p.moves = true
	return p.detach()
}

func (p *pupil) loss(_ context.Context, rows []int) (*autodiff.Tensor, error) {
	x := make([]float32, 5*len(rows))
	for i := range x {
		x[i] = float32((rows[i/5]*7+i%5*3)%11) / 11
	}
	in := autodiff.New(x, len(rows), 5)
	if err := autodiff.NewArena("step").Adopt(in); err != nil {
		return nil, err
	}
	out := p.model.Forward(in)
	return autodiff.Mean(autodiff.Mul(out, out)), nil
}

func (p *pupil) next(c context.Context) error {
	_, err := p.Step(c, p.Next(), few, p.loss)
	return err
}

// almost makes a step but for its last sum, as who loses another member before that has come.
func (p *pupil) almost(c context.Context) error { return p.partly(c, len(p.layout)-1, p.loss) }

// partly makes so many sums of a step, and no more.
func (p *pupil) partly(c context.Context, keep int, loss Loss) error {
	p.batch = few.Batch
	defer func() { p.batch = 0 }()
	if err := p.planned(c); err != nil {
		return err
	}
	x := p.newExchange()
	err := x.carryOut(c, work{p.Next(), few, loss})
	host.Forget(x.sums[keep:])
	p.plan = nil
	return errors.Join(p.failed, err, x.keepSums())
}

// requireSame says that all have made the same steps.
func requireSame(t *testing.T, step uint64, all ...*pupil) {
	t.Helper()
	want, err := all[0].digest()
	require.NoError(t, err)
	for rank, p := range all {
		got, err := p.digest()
		require.NoError(t, err)
		require.Equal(t, want, got, "member %d", rank)
		require.Equal(t, step, p.Next(), "member %d", rank)
	}
}

func soon(t *testing.T) context.Context {
	t.Helper()
	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return c
}

func TestANewcomerWhoseTransferAnEpochCutsOffGetsTheStateInTheNextOne(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	c, over, came := soon(t), make(chan struct{}), make(chan struct{})
	loads := 0
	all := class(t, ws, true, func(rank int, cfg *Config) {
		cfg.Step = []uint64{3, 0}[rank]
		cfg.Save = func() ([]byte, error) { return nil, nil }
		cfg.Load = func([]byte) error {
			if loads++; loads == 1 {
				close(over) // when all is here but this
			}
			return nil
		}
	})
	for rank, err := range rpctest.Attempt(2, func(rank int) error {
		p := all[rank]
		err := p.enter(c, 1, ws, over)
		for rank == 0 && err == nil {
			err = p.next(c)
		}
		return err
	}) {
		require.ErrorIs(t, err, elastic.ErrOver, "rank %d", rank)
	}
	for rank, err := range rpctest.Attempt(2, func(rank int) error {
		p := all[rank]
		err := p.enter(c, 2, ws, nil)
		if rank == 1 {
			close(came)
			return errors.Join(err, p.Close(c))
		}
		for ; err == nil; err = p.next(c) {
			select {
			case <-came:
				return nil
			default:
			}
		}
		return err
	}) {
		require.NoError(t, err, "rank %d", rank)
	}
	require.Equal(t, 2, loads)
}

func TestSumsThatSomebodyLacksAreThereInTheNextEpochAlsoAfterClose(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	c, over := soon(t), make(chan struct{})
	all := class(t, ws, false, func(rank int, cfg *Config) {})
	for rank, err := range rpctest.Attempt(2, func(rank int) error {
		p := all[rank]
		err := p.enter(c, 1, ws, over)
		if rank == 0 {
			return errors.Join(err, p.next(c), p.Close(c))
		}
		if err = errors.Join(err, p.almost(c)); err == nil {
			close(over)
			err = p.next(c)
		}
		return err
	}) {
		require.ErrorIs(t, err, elastic.ErrOver, "rank %d", rank)
	}
	for rank, err := range rpctest.Attempt(2, func(rank int) error { return all[rank].enter(c, 2, ws, nil) }) {
		require.NoError(t, err, "rank %d", rank)
	}
	requireSame(t, 1, all...)
}

func TestWithFewerThanMinWhoClosesGivesItsLastSumsToWhoLacksThemAndBothEnd(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	c := soon(t)
	all := class(t, ws, false, func(_ int, cfg *Config) { cfg.Min = 3 })
	for rank, err := range rpctest.Attempt(3, func(rank int) error {
		p := all[rank]
		if err := p.enter(c, 1, ws, nil); err != nil || rank == 1 {
			return errors.Join(err, p.almost(c))
		}
		return p.next(c)
	}) {
		require.NoError(t, err, "rank %d", rank)
	}
	require.NoError(t, ws[2].Close())
	for rank, err := range rpctest.Attempt(2, func(rank int) (err error) {
		p := all[rank]
		if rank == 1 {
			err = p.next(c)
		}
		return errors.Join(err, p.Close(c))
	}) {
		require.NoError(t, err, "rank %d", rank)
	}
	requireSame(t, 1, all[:2]...)
}

// waiting calls fn when a team warns that it waits for others.
type waiting struct {
	slog.Handler
	fn func(says string)
}

func (h *waiting) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && strings.Contains(r.Message, "waiting for ") {
		h.fn(r.Message)
	}
	return nil
}

func (h *waiting) Enabled(context.Context, slog.Level) bool { return true }

func TestWithinAnEpochHalfOfItsWorkersDoNotGoOnWhetherTheOthersAreLostOrHaveClosedTheTeam(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("they close it: ", closes), func(t *testing.T) {
			ws := rpctest.World(t, rpctest.Net(), 2)
			c, over := soon(t), make(chan struct{})
			all := class(t, ws, false, func(_ int, cfg *Config) {
				cfg.Logger = slog.New(&waiting{slog.DiscardHandler, func(string) { close(over) }})
			})
			errs := rpctest.Attempt(2, func(rank int) error {
				p := all[rank]
				if err := p.enter(c, 1, ws, over); err != nil {
					return err
				}
				switch {
				case rank == 0:
					return errors.Join(p.next(c), p.next(c))
				case closes:
					return errors.Join(p.next(c), p.Close(c))
				}
				return errors.Join(p.next(c), ws[1].Close())
			})
			require.ErrorIs(t, errs[0], elastic.ErrOver)
			require.NoError(t, errs[1])
		})
	}
}

func TestWhoClosesTheTeamWithinAnEpochEndsAlsoWhereAllOthersAreLost(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	c, over := soon(t), make(chan struct{})
	all := class(t, ws, false, func(int, *Config) {})
	for rank, err := range rpctest.Attempt(2, func(rank int) error {
		return errors.Join(all[rank].enter(c, 1, ws, over), all[rank].next(c))
	}) {
		require.NoError(t, err, "rank %d", rank)
	}
	require.NoError(t, ws[1].Close())
	require.NoError(t, all[0].Close(c))
	require.Equal(t, uint64(1), all[0].Next())
}

func TestATeamWithFewerThanMinWarnsOnceThatItWaits(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	says := make(chan string, 10)
	c, cancel := context.WithCancel(soon(t))
	all := class(t, ws, false, func(_ int, cfg *Config) {
		cfg.Min, cfg.Logger = 3, slog.New(&waiting{slog.DiscardHandler, func(text string) { says <- text }})
	})
	errs := rpctest.Attempt(2, func(rank int) error {
		if rank == 0 {
			time.AfterFunc(20*pause, cancel) // it looks several times meanwhile
		}
		return all[rank].enter(c, 1, ws, nil)
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, context.Canceled, "rank %d", rank)
	}
	close(says)
	for range 2 { // one of each
		require.Equal(t, "2 of 3 workers (Min) are there; waiting for others", <-says)
	}
	require.Empty(t, says)
}
