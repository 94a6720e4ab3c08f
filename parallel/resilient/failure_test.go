package resilient

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/parallel"
)

// fails is a step whose loss function fails.
func (p *pupil) fails(c context.Context, why error) error {
	_, err := p.Step(c, p.Next(), few, func(context.Context, []int) (*autodiff.Tensor, error) { return nil, why })
	return err
}

func TestAMemberThatFailsWithoutAWordIsNamedOnAll(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	c := soon(t)
	all := class(t, ws, false, func(int, *Config) {})
	for rank, err := range rpctest.Attempt(2, func(rank int) error {
		p := all[rank]
		if err := p.enter(c, 1, ws, nil); err != nil || rank == 0 {
			return errors.Join(err, p.next(c))
		}
		return p.fails(c, errors.New(""))
	}) {
		var failure *parallel.FailureError
		require.ErrorAs(t, err, &failure, "rank %d", rank)
		require.Equal(t, ws[1].Name(), failure.Worker)
	}
}

func TestAMemberThatHasFailedAndIsLostIsNamedByTheOthersWhoGoOn(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	c := soon(t)
	all := class(t, ws, false, func(int, *Config) {})
	bad := errors.New("the disk is full")
	for rank, err := range rpctest.Attempt(3, func(rank int) error {
		p := all[rank]
		if err := p.enter(c, 1, ws, nil); err != nil {
			return err
		}
		keep := len(p.layout) - min(rank, 1) // one has the header
		if rank == 2 {
			return p.partly(c, keep, func(context.Context, []int) (*autodiff.Tensor, error) { return nil, bad })
		}
		return p.partly(c, keep, p.loss)
	}) {
		require.Equal(t, rank == 2, errors.Is(err, bad), "%v", err)
	}
	require.NoError(t, ws[2].Close())
	for rank, err := range rpctest.Attempt(2, func(rank int) error { return all[rank].next(c) }) {
		var failure *parallel.FailureError
		require.ErrorAs(t, err, &failure, "rank %d", rank)
		require.Equal(t, parallel.FailureError{Rank: -1, Worker: ws[2].Name(), Text: failure.Text}, *failure)
		require.ErrorContains(t, err, "it is lost")
	}
	for rank, err := range rpctest.Attempt(2, func(rank int) error { return all[rank].next(c) }) {
		require.NoError(t, err, "rank %d", rank)
	}
	requireSame(t, 1, all[:2]...)
}

func TestAMemberThatFailsSaysSoAlsoWhenAnotherOneIsLostMeanwhile(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	c := soon(t)
	all := class(t, ws, false, func(int, *Config) {})
	bad := errors.New("the disk is full")
	for rank, err := range rpctest.Attempt(3, func(rank int) error {
		p := all[rank]
		if err := p.enter(c, 1, ws, nil); err != nil {
			return err
		}
		if rank == 1 {
			return p.partly(c, len(p.layout), func(context.Context, []int) (*autodiff.Tensor, error) { return nil, bad })
		}
		return p.partly(c, len(p.layout), p.loss)
	}) {
		require.Equal(t, rank == 1, errors.Is(err, bad), "%v", err)
	}
	require.NoError(t, ws[2].Close())
	for rank, err := range rpctest.Attempt(2, func(rank int) error { return all[rank].next(c) }) {
		var failure *parallel.FailureError
		require.ErrorAs(t, err, &failure, "rank %d", rank)
		require.Equal(t, ws[1].Name(), failure.Worker)
		require.Equal(t, bad.Error(), failure.Text)
	}
}

func TestANewcomerComesAlsoWhereAStepOfTheOthersFailsMeanwhile(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	c, came := soon(t), make(chan struct{})
	all := class(t, ws, true, func(rank int, cfg *Config) { cfg.Step = []uint64{3, 0}[rank] })
	for rank, err := range rpctest.Attempt(2, func(rank int) error {
		p := all[rank]
		err := p.enter(c, 1, ws, nil)
		if rank == 1 {
			close(came)
			return errors.Join(err, p.Close(c))
		}
		if failed := p.fails(c, errors.New("no rows")); !errors.Is(failed, parallel.ErrFailed) {
			return fmt.Errorf("the step ended with %w", failed)
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
}
