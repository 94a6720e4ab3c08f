package elastic

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

var (
	errPeer    = errors.New("worker1 is lost")
	errStopped = errors.New("the test has ended")
)

// told is a membership whose places are told by the test.
func told(first Place) *Membership {
	m := newMembership(JoinConfig{})
	m.dial = func(context.Context, store.ClientConfig) (store.Store, error) { return store.NewMemory(), nil }
	m.set(first)
	return m
}

func TestWorkGoesOnInEveryEpochUntilItIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := told(Place{World: 3, Nodes: 3})
		later := []Place{
			{World: 3, Nodes: 3, Epoch: 1}, {World: 2, Nodes: 2, Round: 1, Epoch: 2},
			{World: 4, Nodes: 3, Round: 2, Epoch: 3}, {World: 4, Nodes: 3, Round: 3, Epoch: 4},
		}
		var why []string
		var before store.Store
		var last Place
		began := time.Now()
		require.NoError(t, m.Each(t.Context(), func(c context.Context, e *Epoch) error {
			n := len(why)
			why = append(why, e.Change(last))
			last = e.Place
			require.NoError(t, e.Store.Set(c, "mine", nil))
			if before != nil {
				require.ErrorIs(t, before.Set(c, "mine", nil), store.ErrClosed)
				require.Equal(t, e.Told, began.Add(time.Duration(2*n)*time.Second))
			}
			before = e.Store
			if n == len(later) {
				return nil
			}
			time.AfterFunc(2*time.Second, func() { m.set(later[n]) })
			return errPeer // before the nodes have noticed
		}))
		require.Equal(t, "this worker is new", last.Change(Place{}))
		require.Equal(t, "this worker is new", Place{World: 1, Restarts: 1}.Change(Place{}))
		require.Equal(t, "1 node became 3, 1 worker became 4", last.Change(Place{World: 1, Nodes: 1}))
		require.Equal(t, []string{"the job begins", "a worker was replaced", "3 nodes became 2, 3 workers became 2",
			"2 nodes became 3, 2 workers became 4", "other nodes"}, why)
	})
}

func TestWorkThatEndsWhenAnotherEpochHasComeIsCalledInThatToo(t *testing.T) {
	m := told(Place{World: 1})
	var worlds []int
	require.NoError(t, m.Each(t.Context(), func(_ context.Context, e *Epoch) error {
		if worlds = append(worlds, e.World); e.World < 3 {
			m.set(Place{World: e.World + 1, Epoch: e.Epoch + 1})
		}
		return nil
	}))
	require.Equal(t, []int{1, 2, 3}, worlds)

	m = told(Place{World: 1})
	require.NoError(t, m.Each(t.Context(), func(context.Context, *Epoch) error {
		m.set(Place{World: 2, Epoch: 1})
		m.fail(errStopped)
		return nil
	}), "no other epoch will be heard of")
}

func TestAPlaceThatIsToldAgainIsNoOther(t *testing.T) {
	m := told(Place{World: 2})
	p := m.Place()
	m.set(Place{World: 2})
	require.Equal(t, p, m.Place())
	select {
	case <-p.Over:
		t.Fatal("it is over")
	default:
	}
	m.set(Place{World: 2, Epoch: 1})
	<-p.Over
}

func TestAnEpochsContextOutlivesItsPlaceByTheGraceAndWhatJoinsDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := told(Place{})
		epochs := 0
		require.NoError(t, m.Each(t.Context(), func(c context.Context, e *Epoch) error {
			if epochs++; epochs == 2 {
				return nil
			}
			joining, stop := e.Context(c)
			defer stop()
			began := time.Now()
			time.AfterFunc(time.Second, func() { m.set(Place{Epoch: 1}) })
			<-joining.Done()
			require.ErrorIs(t, context.Cause(joining), ErrOver)
			require.Equal(t, time.Second, time.Since(began))
			require.NoError(t, c.Err())
			<-c.Done()
			require.Equal(t, 4*time.Second, time.Since(began))
			return context.Cause(c)
		}))
		require.Equal(t, 2, epochs)
	})
}

func TestAFailureAfterWhichNoOtherPlaceFollowsIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, began := told(Place{}), time.Now()
		err := m.Each(t.Context(), func(context.Context, *Epoch) error { return errPeer })
		require.ErrorIs(t, err, errPeer)
		require.ErrorContains(t, err, "no other place has followed for 1m0s")
		require.Equal(t, time.Minute, time.Since(began))

		began = time.Now()
		err = m.Each(t.Context(), func(context.Context, *Epoch) error { return Final(errPeer) })
		require.Equal(t, errPeer, err)
		require.Zero(t, time.Since(began))
		require.NoError(t, Final(nil))

		c, cancel := context.WithCancelCause(t.Context())
		err = m.Each(c, func(context.Context, *Epoch) error { cancel(errStopped); return errPeer })
		require.Equal(t, errStopped, err)

		m.dial = func(context.Context, store.ClientConfig) (store.Store, error) { return nil, store.ErrUnreachable }
		err = m.Each(t.Context(), func(context.Context, *Epoch) error { panic("there is no store") })
		require.ErrorIs(t, err, store.ErrUnreachable)

		time.AfterFunc(time.Second, func() { m.fail(ErrNoAgent) })
		m.dial = func(context.Context, store.ClientConfig) (store.Store, error) { return store.NewMemory(), nil }
		err = m.Each(t.Context(), func(c context.Context, e *Epoch) error { <-c.Done(); return context.Cause(c) })
		require.ErrorIs(t, err, ErrNoAgent)
	})
}

func TestWithoutAnAgentThereIsOneEpoch(t *testing.T) {
	server, err := store.Serve(store.ServerConfig{Addr: "127.0.0.1:0"})
	require.NoError(t, err)
	defer server.Close()
	for k, v := range map[string]string{"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "1",
		"GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": server.Addr()[len("127.0.0.1:"):]} {
		t.Setenv(k, v)
	}
	unset(t, AgentVariable)
	m, err := Join(t.Context())
	require.NoError(t, err)
	defer m.Close()
	for _, want := range []error{nil, errPeer} {
		require.ErrorIs(t, m.Each(t.Context(), func(c context.Context, e *Epoch) error {
			require.Equal(t, 2, e.World)
			require.Equal(t, "127.0.0.1", e.Addr)
			require.NoError(t, e.Store.Set(c, "k", nil))
			return want
		}), want)
	}
}

func TestAWorkerWithoutTLSDoesNotBecomeAGuestOfItsJobsStore(t *testing.T) {
	t.Setenv(TokenVariable, "")
	t.Setenv(transport.CAVariable, "")
	work := func(context.Context, *Epoch) error { return nil }
	m := told(Place{World: 2, StoreTLS: true})
	err := m.Each(t.Context(), work)
	require.ErrorIs(t, err, errPlain)
	require.ErrorIs(t, err, transport.ErrNoSecret)
	given := &tls.Config{}
	for name, m := range map[string]*Membership{"given": told(Place{StoreTLS: true}), "in the environment": told(Place{StoreTLS: true})} {
		if name == "given" {
			m.cfg.StoreTLS = given
		} else {
			t.Setenv(TokenVariable, secrettest.Token("job"))
		}
		m.dial = func(_ context.Context, cfg store.ClientConfig) (store.Store, error) {
			require.NotNil(t, cfg.TLS, name)
			require.Equal(t, name == "given", cfg.TLS == given)
			return store.NewMemory(), nil
		}
		require.NoError(t, m.Each(t.Context(), work), name)
	}
}

func TestAPlaceIsReadAsItWasWritten(t *testing.T) {
	want := Place{Rank: 1, World: 2, LocalRank: 3, LocalWorld: 4, NodeRank: 5, Nodes: 6, Round: 7, Epoch: 8, Source: 9, Restarts: 10, Store: "s:1", StoreTLS: true, Addr: "a"}
	b, err := json.Marshal(want)
	require.NoError(t, err)
	var got Place
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, want, got)
}

func TestAMembershipIsClosedWhileItsAgentIsSilent(t *testing.T) {
	leak.Check(t)
	from, to, err := os.Pipe()
	require.NoError(t, err)
	defer to.Close()
	fd, err := syscall.Dup(int(from.Fd())) // Fd makes it blocking, as what a process inherits is
	require.NoError(t, err)
	require.NoError(t, from.Close())
	t.Setenv(AgentVariable, strconv.Itoa(fd))
	_, err = to.WriteString(`{"rank": 2, "world": 3}` + "\n")
	require.NoError(t, err)
	m, err := Join(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, m.Place().Rank)
	require.NoError(t, m.Close())
	<-m.Place().Over
	require.ErrorIs(t, m.Err(), store.ErrClosed)

	t.Setenv(AgentVariable, "1000000")
	_, err = Join(t.Context())
	require.ErrorContains(t, err, "file 1000000")
}

func unset(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "") // which restores it
	require.NoError(t, os.Unsetenv(name))
}
