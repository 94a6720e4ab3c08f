package proctest_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]proctest.Command{
		"double": proctest.Do(func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
		"fail":   proctest.Do(func(context.Context, struct{}) (int, error) { return 0, errors.New("as asked") }),
		"pid":    proctest.Do(func(context.Context, struct{}) (int, error) { return os.Getpid(), nil }),
		"uid":    proctest.Do(func(context.Context, struct{}) (int, error) { return os.Getuid(), nil }),
		"list": proctest.Do(func(_ context.Context, dir string) (int, error) {
			files, err := os.ReadDir(dir)
			return len(files), err
		}),
		"hang": proctest.Do(func(c context.Context, _ struct{}) (int, error) { <-c.Done(); return 0, c.Err() }),
	})
}

func TestAnotherProcessRunsCommandsManyAtATime(t *testing.T) {
	leak.Check(t)
	p := proctest.Start(t, nil)
	c, cancel := context.WithCancel(t.Context())
	hung := make(chan error)
	go func() { hung <- p.Ask(c, "hang", struct{}{}, nil) }()
	var got int
	require.NoError(t, p.Ask(t.Context(), "double", 21, &got))
	require.Equal(t, 42, got)
	require.NoError(t, p.Ask(t.Context(), "pid", struct{}{}, &got))
	require.Equal(t, p.PID(), got)
	require.NotEqual(t, os.Getpid(), got)
	require.ErrorContains(t, p.Ask(t.Context(), "fail", struct{}{}, nil), "as asked")
	require.ErrorContains(t, p.Ask(t.Context(), "nothing", struct{}{}, nil), `no command "nothing"`)
	cancel()
	require.ErrorIs(t, <-hung, context.Canceled)
}

func TestCommandsToAKilledProcessFail(t *testing.T) {
	leak.Check(t)
	p := proctest.Start(t, nil)
	hung := make(chan error)
	go func() { hung <- p.Ask(t.Context(), "hang", struct{}{}, nil) }()
	require.NoError(t, p.Ask(t.Context(), "double", 1, nil))
	p.Kill()
	require.ErrorIs(t, <-hung, proctest.ErrEnded)
	require.ErrorIs(t, p.Ask(t.Context(), "double", 1, nil), proctest.ErrEnded)
}
