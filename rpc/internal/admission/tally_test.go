package admission

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATallyIsIdleWhenTheLastWorkEndsAndTakesNoneWhenClosed(t *testing.T) {
	var work sync.WaitGroup
	tally := NewTally(&work)
	require.NoError(t, tally.Idle(t.Context(), false), "nothing has begun")
	require.False(t, tally.Leaving())
	require.True(t, tally.Begin())
	require.True(t, tally.Begin())
	c, stop := context.WithCancelCause(t.Context())
	stop(errors.New("enough"))
	require.ErrorContains(t, tally.Idle(c, true), "enough")
	require.False(t, tally.Leaving(), "work is left")
	left := make(chan error, 1)
	go func() { left <- tally.Idle(t.Context(), true) }()
	tally.Finish()
	tally.Finish()
	require.NoError(t, <-left)
	require.True(t, tally.Leaving())
	tally.Close()
	require.False(t, tally.Begin())
	work.Wait()
}
