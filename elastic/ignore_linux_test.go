package elastic

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/internal/pipe"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
)

// agentOf is the agent's end of the pipe of a membership, by which the test tells places.
type agentOf struct {
	t  *testing.T
	to *os.File
}

func (a agentOf) tell(line string) {
	a.t.Helper()
	_, err := a.to.WriteString(line)
	require.NoError(a.t, err)
}

// heeded returns when all that was told was read.
func (a agentOf) heeded() {
	a.t.Helper()
	for late := time.Now().Add(time.Minute); pipe.Unread(a.to) > 0; {
		require.True(a.t, time.Now().Before(late), "nobody reads what was told")
		runtime.Gosched()
	}
}

func joined(t *testing.T) (*Membership, agentOf) {
	from, to, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = to.Close() })
	fd, err := syscall.Dup(int(from.Fd())) // Fd makes it blocking, as what a process inherits is
	require.NoError(t, err)
	require.NoError(t, from.Close())
	t.Setenv(AgentVariable, strconv.Itoa(fd))
	a := agentOf{t, to}
	a.tell(`{"world": 1}` + "\n")
	m, err := Join(t.Context())
	require.NoError(t, err)
	m.dial = func(context.Context, store.ClientConfig) (store.Store, error) { return store.NewMemory(), nil }
	return m, a
}

func TestAPlaceThatComesWhenTheWorkIsDoneIsLeftUnreadUntilThereIsMore(t *testing.T) {
	leak.Check(t)
	m, agent := joined(t)
	var worlds []int
	each := func(last int) {
		require.NoError(t, m.Each(t.Context(), func(_ context.Context, e *Epoch) error {
			if worlds = append(worlds, e.World); e.World < last {
				if e.World == 1 {
					agent.tell(`{"world": 2, "epoch": 1}` + "\n")
				}
				<-e.Over
			}
			return nil
		}))
	}
	each(2)
	require.Equal(t, []int{1, 2}, worlds)
	later := `{"world": 3, "epoch": 2}` + "\n" + `{"world": 4, "epoch": 3}` + "\n"
	agent.tell(later)
	for range 100 {
		runtime.Gosched()
	}
	require.Equal(t, len(later), pipe.Unread(agent.to), "its agent starts it again")
	require.Equal(t, 2, m.Place().World)
	each(4)
	require.Contains(t, fmt.Sprint(worlds), "[1 2 2")
	require.Equal(t, 4, worlds[len(worlds)-1])
	require.Equal(t, 4, m.Place().World)
	require.Zero(t, pipe.Unread(agent.to))
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.Each(t.Context(), nil), store.ErrClosed)
}

func TestAPlaceOfWhichAPartIsReadWhenTheWorkIsDoneIsReadToItsEndWhenThereIsMore(t *testing.T) {
	m, agent := joined(t)
	defer m.Close()
	line := `{"world": 2, "addr": "` + strings.Repeat("x", 100) + `"}` + "\n"
	agent.tell(line[:50])
	agent.heeded()
	none := func(context.Context, *Epoch) error { return nil }
	require.NoError(t, m.Each(t.Context(), none))
	agent.tell(line[50:])
	require.Equal(t, 1, m.Place().World)
	require.NoError(t, m.Each(t.Context(), func(_ context.Context, e *Epoch) error {
		if e.World == 1 {
			<-e.Over
		}
		return nil
	}))
	require.Equal(t, 2, m.Place().World)
}

func TestAnAgentThatEndsIsNoticedWhileTheWorkIsDone(t *testing.T) {
	m, agent := joined(t)
	defer m.Close()
	require.NoError(t, m.Each(t.Context(), func(_ context.Context, e *Epoch) error {
		require.NoError(t, agent.to.Close())
		<-e.Over
		return nil
	}))
	require.ErrorIs(t, m.Err(), ErrNoAgent)
}
