package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
)

// nameless is a resolver that does not know a name before it was asked so often.
func nameless(times int) func(context.Context, string) ([]string, error) {
	return func(_ context.Context, host string) ([]string, error) {
		if times--; times >= 0 {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		return []string{"::1", "127.0.0.1"}, nil
	}
}

func TestANodeHostsTheRendezvousOnceItsNameIsThere(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(proctest.Address())
	require.NoError(t, err)
	spec := job(t, "stay", 1)
	spec.MinNodes, spec.RunID, spec.Endpoint, spec.lookup = 2, "j", "localhost:"+port, nameless(2)
	spec = spec.populate()
	m, err := meet(t.Context(), &spec, func(string) {}, nil)
	require.NoError(t, err)
	defer m.leave()
	require.True(t, m.hosts)
}

func TestANameThatNeverComesIsToldWhileANodeWaitsAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var said []string
		spec := Spec{MinNodes: 2, NprocPerNode: 1, RunID: "j", Endpoint: "node0:29400", JoinTimeout: 12 * time.Second, lookup: nameless(1 << 20)}.populate()
		_, err := meet(t.Context(), &spec, func(text string) { said = append(said, text) }, nil)
		require.EqualError(t, err, `the rendezvous at node0:29400: the name "node0" is not found, or not yet`)
		require.Equal(t, 12*time.Second, time.Since(start))
		require.Equal(t, []string{`waiting for the store at node0:29400, job j, 3 s of 12 s: the name "node0" is not found, or not yet`,
			`waiting for the store at node0:29400, job j, 10 s of 12 s: the name "node0" is not found, or not yet`}, said)
	})
}

func TestAStoreThatCannotBeReachedIsWaitedForAndWhatKeepsItAwayIsSaid(t *testing.T) {
	refused := func(err error) error {
		return fmt.Errorf("%w: %w", store.ErrUnreachable, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)})
	}
	for want, err := range map[string]error{
		"there is no route to it (no route to host)":                    refused(syscall.EHOSTUNREACH),
		"there is no route to it (network is unreachable)":              refused(syscall.ENETUNREACH),
		"there is no route to it (no route to host) ":                   errors.New("rpc error: dial tcp 10.1.2.3:2379: connect: no route to host"),
		"nothing listens there, or not yet (connection refused)":        refused(syscall.ECONNREFUSED),
		`the name "e1" is not found, or not yet`:                        &net.DNSError{Err: "no such host", Name: "e1", IsNotFound: true},
		"a name there is not found, or not yet":                         errors.New("rpc error: dial tcp: lookup e2: no such host"),
		`the name "e1" cannot be looked up now (lookup e1: misbehaves)`: &net.DNSError{Err: "misbehaves", Name: "e1", IsTemporary: true},
	} {
		want = strings.TrimSpace(want)
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			spec := Spec{MinNodes: 2, NprocPerNode: 1, RunID: "j", Endpoint: "e1:1", JoinTimeout: 5 * time.Second}.populate()
			spec.Meet = func(context.Context) (store.Store, error) { return nil, err }
			var said []string
			_, end := meet(t.Context(), &spec, func(text string) { said = append(said, text) }, nil)
			require.EqualError(t, end, "the rendezvous at e1:1: "+want)
			require.ErrorIs(t, end, err)
			require.Equal(t, []string{"waiting for the store at e1:1, job j, 3 s of 5 s: " + want}, said)
			require.Equal(t, 5*time.Second, time.Since(start))
		})
	}
	spec := Spec{MinNodes: 2, NprocPerNode: 1, RunID: "j", Endpoint: "e1:1"}.populate()
	other := errors.New("of another kind")
	spec.Meet = func(context.Context) (store.Store, error) { return nil, other }
	_, err := meet(t.Context(), &spec, func(string) {}, nil)
	require.ErrorIs(t, err, other, "which waiting does not mend")
}

func TestTheWorkersStoreWaitsForTheNameThatItIsServedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := Spec{lookup: nameless(40)}
		start := time.Now()
		all, err := spec.named(t.Context(), "node0")
		require.NoError(t, err)
		require.Equal(t, []string{"127.0.0.1", "::1"}, all)
		require.Equal(t, 40*time.Second, time.Since(start))
		c, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		spec.lookup = nameless(1 << 20)
		_, err = spec.named(c, "node0")
		require.EqualError(t, err, `the name "node0" is not found, or not yet`)
	})
}
