//go:build netns && linux

package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/disttest/workload"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

const hosts = 3

func TestMain(m *testing.M) {
	var here resident
	here.reached = make(chan struct{}, 1)
	here.cancelled = make(chan time.Time, 1)
	proctest.Main(m, map[string]proctest.Command{
		"store":     proctest.Do(here.store),
		"join":      proctest.Do(here.join),
		"close":     proctest.Do(here.close),
		"mix":       proctest.Do(here.mix),
		"send":      proctest.Do(here.send),
		"pending":   proctest.Do(here.pending),
		"cancel":    proctest.Do(here.cancel),
		"cancelled": proctest.Do(here.cancelledAt),
		"sink":      proctest.Do(here.sink),
		"pour":      proctest.Do(here.pour),
		"run":       proctest.Do(runProgram),
		"paced":     proctest.Do(here.paced),
	})
}

// resident is the worker of a host's process.
type resident struct {
	m         *workload.Member
	reached   chan struct{}  // a call has come to the end of its path here
	cancelled chan time.Time // when a call's context ended here
}

func (r *resident) store(_ context.Context, addr string) (string, error) {
	s, err := store.Serve(store.ServerConfig{Addr: addr})
	if err != nil {
		return "", err
	}
	return s.Addr(), nil // it ends with the process
}

func (r *resident) join(c context.Context, p workload.Place) (_ struct{}, err error) {
	r.m, err = p.Join(c, r.deep(), swallow)
	return struct{}{}, err
}

func (r *resident) close(context.Context, struct{}) (struct{}, error) { return struct{}{}, r.m.Close() }

// mixing is a number of steps of the mix.
type mixing struct {
	Seed     uint64
	Steps    int
	MaxElems int
	For      time.Duration // at least
}

func (r *resident) mix(c context.Context, in mixing) (steps int, err error) {
	mix := workload.Mix{W: r.m.Worker, Rand: mathrand.New(mathrand.NewPCG(in.Seed, 0)), MaxElems: in.MaxElems}
	for start := time.Now(); steps < in.Steps || time.Since(start) < in.For; steps++ {
		if err := mix.Step(c); err != nil {
			return steps, fmt.Errorf("step %d: %w", steps, err)
		}
	}
	return steps, nil
}

var swallow = rpc.Define("swallow", func(_ context.Context, t *autodiff.Tensor) (int, error) { return t.Shape().Elems(), nil })

// sending is bytes for a host, by name or address.
type sending struct {
	To    string
	Bytes int
}

func (r *resident) send(c context.Context, in sending) (time.Duration, error) {
	t := autodiff.Ones(device.Float32, in.Bytes/4)
	start := time.Now()
	n, err := swallow.Call(r.m.Context(c), in.To, t)
	if err == nil && n != in.Bytes/4 {
		err = fmt.Errorf("%d elements arrived", n)
	}
	return time.Since(start), err
}

// sink takes one TCP connection and answers its end with one byte.
func (r *resident) sink(_ context.Context, addr string) (string, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	go func() {
		defer l.Close()
		if conn, err := l.Accept(); err == nil {
			defer conn.Close()
			_, _ = io.Copy(io.Discard, conn)
			_, _ = conn.Write([]byte{1})
		}
	}()
	return l.Addr().String(), nil
}

func (r *resident) pour(c context.Context, in sending) (time.Duration, error) {
	start := time.Now()
	conn, err := (&net.Dialer{}).DialContext(c, "tcp", in.To)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, in.Bytes)); err != nil {
		return 0, err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return time.Since(start), err
}

// ending is how a call ended.
type ending struct {
	At   time.Time
	Lost bool // the error matches ErrPeerLost
	Text string
}

// pending calls a function that never answers.
func (r *resident) pending(c context.Context, to string) (ending, error) {
	_, err := r.deep().Call(r.m.Context(c), to, path{})
	if err == nil {
		return ending{}, errors.New("the call returned")
	}
	return ending{time.Now(), errors.Is(err, rpc.ErrPeerLost), err.Error()}, nil
}

type path struct{ To []string }

// deep calls itself along a path and stays at its end until its context ends.
func (r *resident) deep() *rpc.Func[path, struct{}] {
	var f *rpc.Func[path, struct{}]
	f = rpc.Define("deep", func(c context.Context, p path) (struct{}, error) {
		defer context.AfterFunc(c, func() {
			select {
			case r.cancelled <- time.Now():
			default:
			}
		})()
		if len(p.To) > 0 {
			return f.Call(c, p.To[0], path{p.To[1:]})
		}
		select {
		case r.reached <- struct{}{}:
		default:
		}
		<-c.Done()
		return struct{}{}, context.Cause(c)
	})
	return f
}

// cancel makes a call whose path ends here, and cancels it when it has arrived.
func (r *resident) cancel(c context.Context, to []string) (time.Time, error) {
	c, stop := context.WithCancel(c)
	defer stop()
	future := r.deep().Async(r.m.Context(c), to[0], path{to[1:]})
	select {
	case <-r.reached:
	case <-future.Done():
		_, err := future.Wait(c)
		return time.Time{}, err
	}
	at := time.Now()
	stop()
	_, err := future.Wait(context.WithoutCancel(c))
	if !errors.Is(err, context.Canceled) {
		return at, fmt.Errorf("the cancelled call ended with %w", err)
	}
	return at, nil
}

func (r *resident) cancelledAt(c context.Context, _ struct{}) (time.Time, error) {
	select {
	case at := <-r.cancelled:
		return at, nil
	case <-c.Done():
		return time.Time{}, c.Err()
	}
}

// land is three hosts and the switch between them, with a store on the first.
type land struct {
	*Switch
	hosts [hosts]*proctest.Proc
	place workload.Place
	world int
}

func hostAddr(i int) string { return fmt.Sprintf("10.7.0.%d", i+1) }
func name(i int) string     { return fmt.Sprintf("worker%d", i) }

func found(t *testing.T, p Path) *land {
	t.Helper()
	l := &land{Switch: NewSwitch(1)}
	for i := range hosts {
		l.hosts[i] = startHost(t, l.Switch, netip.MustParseAddr(hostAddr(i)))
	}
	t.Cleanup(l.Switch.Close)
	l.place = workload.Place{Size: hosts, Token: transport.NewToken(), Lanes: []string{transport.LaneQUIC, transport.LaneBulk}}
	require.NoError(t, l.hosts[0].Ask(t.Context(), "store", hostAddr(0)+":0", &l.place.Store))
	l.Set(p)
	l.join(t)
	return l
}

// join makes a new world of all hosts.
func (l *land) join(t *testing.T) {
	t.Helper()
	l.world++
	l.all(t, func(i int) error {
		p := l.place
		p.Rank, p.World, p.Listen = i, fmt.Sprintf("%d/", l.world), hostAddr(i)+":0"
		return l.hosts[i].Ask(t.Context(), "join", p, nil)
	})
}

// all runs fn for all hosts at once.
func (l *land) all(t *testing.T, fn func(i int) error) {
	t.Helper()
	errs := make([]error, hosts)
	var wg sync.WaitGroup
	for i := range hosts {
		wg.Go(func() { errs[i] = fn(i) })
	}
	wg.Wait()
	for i, err := range errs {
		require.NoError(t, err, "host %d", i)
	}
}
