package resilient

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/rpc"
)

func TestAFailureIsThatOfTheWorkerThatHasFailedAndNotOfTheOthers(t *testing.T) {
	failed := fmt.Errorf("step 3: %w", &parallel.FailureError{Rank: 1, Worker: "worker1", Text: "no"})
	require.True(t, failedItself("worker1", failed))
	require.False(t, failedItself("worker0", failed))
	require.False(t, failedItself("worker1", errors.New("somebody is lost")))
	require.False(t, failedItself("worker1", nil))
}

func TestWhatNoOtherPlaceMendsEndsEachAtOnce(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 1)
	c := soon(t)
	p := class(t, ws, false, func(int, *Config) {})[0]
	require.NoError(t, p.enter(c, 1, ws, nil))
	_, badRows := p.Step(c, 0, parallel.Rows{N: 50}, p.loss)
	_, noLoss := p.Step(c, 0, few, nil)
	_, otherStep := p.Step(c, 3, few, p.loss)
	for _, err := range []error{
		badRows, noLoss, otherStep, &DifferenceError{Worker: "worker0"}, ErrNoState, fmt.Errorf("joining: %w", rpc.ErrConfig),
		&parallel.FailureError{Worker: "worker0"},
	} {
		require.True(t, p.final("worker0", fmt.Errorf("work: %w", err)), "%v", err)
	}
	p.broken = errors.New("the optimizer cannot make the step")
	_, broken := p.Step(c, 0, few, p.loss)
	require.True(t, p.final("worker0", broken), "%v", broken)
	for _, err := range []error{
		nil, elastic.ErrOver, collective.ErrLost, rpc.ErrTimeout, context.Canceled, errors.New("its own"),
		&parallel.FailureError{Worker: "worker1"}, ErrEnded,
	} {
		require.False(t, p.final("worker0", err), "%v", err)
	}
}
