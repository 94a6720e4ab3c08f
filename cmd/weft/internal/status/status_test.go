package status

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// leaving is a store that can be gone.
type leaving struct {
	store.Store
	gone atomic.Bool
}

func (s *leaving) Check(c context.Context, keys ...string) (bool, error) {
	if s.gone.Load() {
		return false, store.ErrUnreachable
	}
	return s.Store.Check(c, keys...)
}

func TestAWatchEndsWhenTheStoreIsGoneAfterTheTimeThatItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &leaving{Store: store.NewMemory()}
		defer st.Close()
		c, crash := context.WithCancel(t.Context())
		r, err := rdzv.Open(c, agent.RendezvousOf("j", st.Store), rdzv.Config{Min: 1, Silence: 18 * time.Second, LastCall: -1}, rdzv.Node{ID: "me", Slots: 1}, nil)
		require.NoError(t, err)
		require.Equal(t, rdzv.Place, (<-r.News).Kind)
		out := &proctest.Output{}
		w := &watching{at: "h:1", job: "j", out: newBoard(out, false), watch: true}
		var began time.Time
		go func() {
			crash()
			time.Sleep(time.Hour) // of silence, in which the store answers
			began = time.Now()
			st.gone.Store(true)
		}()
		err = w.show(t.Context(), func(context.Context) (store.Store, error) { return keptOpen{st}, nil })
		for range r.News {
		}
		var exit *cli.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, cli.CodeFailed, exit.Code)
		require.ErrorContains(t, err, "the store at h:1, where the job j meets, is gone")
		require.Contains(t, out.String(), "no word of the leader for 9s")
		require.Contains(t, out.String(), "the store at h:1 does not answer; unless it does, this ends in 1m12s")
		require.InDelta(t, 72, time.Since(began).Seconds(), 3)
	})
}

// keptOpen is a store that is not closed by who takes it for its own.
type keptOpen struct{ *leaving }

func (keptOpen) Close() error { return nil }

func TestWhyAnAddressIsNotReachedIsToldApart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	listens, nobody := l.Addr().String(), proctest.Address()
	dial := func(err error) error { // as store.Dial tells it
		return &store.Error{Op: "dial", Addr: "h:1", Err: fmt.Errorf("%w: %w", store.ErrUnreachable, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)})}
	}
	for _, x := range []struct {
		err      error
		at, want string
	}{
		{dial(syscall.EHOSTUNREACH), listens, "there is no route from this machine to " + listens},
		{dial(syscall.ENETUNREACH), listens, "there is no route from this machine to " + listens},
		{dial(syscall.ECONNREFUSED), listens, "nothing listens at " + listens + ", or not yet"},
		{dial(syscall.ETIMEDOUT), listens, listens + " does not answer: the host is down, or a firewall"},
		{dial(syscall.EPERM), listens, "this machine's firewall"},
		{dial(&net.DNSError{Name: "node0", IsNotFound: true}), listens, `the name "node0" is not known to this machine's name service, or not yet`},
		{dial(&net.DNSError{Name: "node0", Err: "server misbehaving"}), listens, `the name "node0" cannot be looked up: server misbehaving`},
		{store.ErrUnreachable, nobody, "nothing listens at " + nobody},
		{store.ErrUnreachable, listens, "something else"},
		{transport.ErrIdentity, nobody, "has another secret"},
		{tls.RecordHeaderError{}, listens, "does not speak TLS"},
	} {
		for _, secure := range []bool{false, true} {
			got := (&watching{at: x.at}).explain(x.err, secure, false).Error()
			if x.want == "something else" {
				x.want = map[bool]string{false: "hangs up or says nothing", true: "does not speak TLS with this secret"}[secure]
				require.Contains(t, got, x.want)
				x.want = "something else"
				continue
			}
			require.Contains(t, got, x.want)
			require.Equal(t, x.want == "does not speak TLS", strings.Contains(got, "does not speak TLS"), got)
		}
	}
}

func TestStatusAdvisesByItsOwnFlags(t *testing.T) {
	for _, x := range []struct {
		err            error
		secure, inEtcd bool
		want           string
	}{
		{transport.ErrIdentity, true, false, secrets.GiveOwn},
		{tls.RecordHeaderError{}, true, false, "does not speak TLS"},
		{store.ErrUnreachable, true, false, "does not speak TLS"},
		{store.ErrUnreachable, false, false, "its store speaks TLS: " + secrets.GiveOwn},
		{store.ErrForeign, false, false, secrets.GiveOwn},
		{store.ErrProtocol, false, false, "does not answer as a store"},
		{store.ErrUnreachable, false, true, "2379"},
		{errors.New("remote error: tls: bad certificate"), true, true, "ca_cert="},
	} {
		advice := statusAdvice(x.err, x.secure, x.inEtcd)
		require.Contains(t, advice, x.want)
		for _, foreign := range []string{"weft store", "--tls", "dialect"} {
			require.NotContains(t, advice, foreign)
		}
	}
}
