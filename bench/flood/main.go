//go:build linux

// Command flood shows what strangers who crowd at a worker cost its members: 10,000 handshakes that stall, from 64 addresses of this
// host, and 1,000 silent connections to the socket of lane local, which are made again when they are closed.
//
// In turns a process floods, and another one only burns as much processor time: it begins as many handshakes with a port where
// nobody listens, or it spins. Two workers call each other all the while, and others join and leave. Each must link with the worker within two seconds,
// and the calls during a flood must reach 0.9 of those beside the burner: it exits with 1 otherwise.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

const (
	dialMost  = 2 * time.Second
	ratioGoal = 0.9
)

func main() {
	role := flag.String("role", "", "what a process of this program does that it has started itself")
	arg := flag.String("arg", "", "and with what")
	turns := flag.Int("turns", 3, "turns of flood and burner")
	handshakes := flag.Int("handshakes", 10_000, "that stall, in each turn")
	only := flag.String("only", "", "one of handshakes and silent; empty: both")
	silent := flag.Int("silent", 1_000, "connections to the local socket")
	flag.Parse()
	var err error
	switch *role {
	case "handshakes":
		err = play(*arg, floodHandshakes)
	case "silent":
		err = play(*arg, floodSocket)
	case "burn":
		err = play(*arg, burn)
	default:
		err = measure(*only, *turns, *handshakes, *silent)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(1)
	}
}

// order is what a child is to do, in JSON.
type order struct {
	At      string // the worker's address, or its socket
	Count   int
	Seconds float64 // how long to burn
	CPU     float64 // seconds of processor time
}

func play(arg string, do func(order) error) error {
	var o order
	if err := json.Unmarshal([]byte(arg), &o); err != nil {
		return err
	}
	return do(o)
}

// child runs a role, and says how long it took and how much processor time it burnt.
func child(role string, o order) (wall, cpu float64, err error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return 0, 0, err
	}
	cmd := exec.Command("/proc/self/exe", "-role", role, "-arg", string(raw)) //nolint:gosec // this program
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	start := time.Now()
	err = cmd.Run()
	s := cmd.ProcessState
	return time.Since(start).Seconds(), (s.UserTime() + s.SystemTime()).Seconds(), err
}

var double = rpc.Define("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })

// job is two workers that call each other, and others that come and go.
type job struct {
	st    store.Store
	at    string // where the flooded worker listens
	lane  string
	token string
	ws    [2]*rpc.Worker
	calls atomic.Int64
	end   context.CancelFunc
	under sync.WaitGroup

	mu    sync.Mutex
	dials []time.Duration // of the others
	err   error
}

func start(lane, listen string) (*job, error) {
	j := &job{st: store.NewMemory(), at: listen, lane: lane, token: transport.NewToken()}
	c, end := context.WithCancel(context.Background())
	j.end = end
	for i := range j.ws {
		w, err := j.join(c, listen)
		if err != nil {
			end()
			return nil, err
		}
		j.ws[i], listen = w, "127.0.0.1:0"
	}
	for i, w := range j.ws {
		for range 2 {
			j.under.Go(func() { j.call(w.Context(c), j.ws[1-i].Name()) })
		}
	}
	j.under.Go(func() { j.others(c) })
	return j, nil
}

func (j *job) join(c context.Context, listen string) (*rpc.Worker, error) {
	return rpc.Join(c, rpc.Config{
		Store: j.st, Dynamic: true, Token: j.token, Listen: listen, Lanes: []string{j.lane, transport.LaneQUIC}, Functions: []rpc.Function{double},
		Logger: slog.New(slog.DiscardHandler),
	})
}

func (j *job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
	j.end()
}

func (j *job) call(c context.Context, to string) {
	for c.Err() == nil {
		if _, err := double.Call(c, to, 1); err == nil {
			j.calls.Add(1)
		} else if c.Err() == nil {
			j.fail(err)
		}
	}
}

// others dial, join, call and leave, one after the other.
func (j *job) others(c context.Context) {
	for c.Err() == nil {
		took, err := j.dial(c)
		if err == nil {
			var w *rpc.Worker
			if w, err = j.join(c, "127.0.0.1:0"); err == nil {
				_, err = double.Call(w.Context(c), j.ws[0].Name(), 1)
				_ = w.Close() // the job goes on
			}
		}
		if err != nil && c.Err() == nil {
			j.fail(fmt.Errorf("a worker that joins: %w", err))
		}
		j.mu.Lock()
		j.dials = append(j.dials, took)
		j.mu.Unlock()
		select {
		case <-time.After(200 * time.Millisecond):
		case <-c.Done():
		}
	}
}

// dial links with the flooded worker, as a member does that it has not met.
func (j *job) dial(c context.Context) (time.Duration, error) {
	id, err := transport.IdentityFromToken(j.token, rpc.NoJob, "newcomer", time.Now)
	if err != nil {
		return 0, err
	}
	n, err := transport.New(transport.Config{Identity: id, Lanes: []string{j.lane, transport.LaneQUIC}})
	if err != nil {
		return 0, err
	}
	from := time.Now()
	link, err := n.Dial(c, j.at)
	took := time.Since(from)
	if err != nil {
		return took, err
	}
	for _, lane := range link.Lanes() {
		if lane.Name == j.lane && lane.Why != "" {
			err = fmt.Errorf("no lane %s: %s", j.lane, lane.Why)
		}
	}
	return took, errors.Join(err, link.Close("only dialled"))
}

// window counts calls and dials while do runs.
func (j *job) window(do func() (wall, cpu float64, err error)) (perSecond, wall, cpu float64, dials []time.Duration, err error) {
	j.mu.Lock()
	first := len(j.dials)
	j.mu.Unlock()
	before, from := j.calls.Load(), time.Now()
	wall, cpu, err = do()
	perSecond = float64(j.calls.Load()-before) / time.Since(from).Seconds()
	j.mu.Lock()
	defer j.mu.Unlock()
	return perSecond, wall, cpu, slices.Clone(j.dials[first:]), errors.Join(err, j.err)
}

func (j *job) stop() error {
	j.end()
	j.under.Wait()
	for _, w := range j.ws {
		_ = w.Close() // the error tells, where there is one
	}
	return errors.Join(j.err, j.st.Close())
}

func freePort() (string, error) {
	free, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return free.LocalAddr().String(), free.Close()
}

// decoy is where handshakes go that cost nobody but who begins them.
const decoy = "127.0.0.1:9"

// elsewhere is what burns as much processor time as a flood and troubles no worker.
func elsewhere(role string, o order, wall, cpu float64) (string, order) {
	if role == "handshakes" {
		o.At = decoy
		return role, o
	}
	return "burn", order{Seconds: wall, CPU: cpu}
}

func measure(only string, turns, handshakes, silent int) error {
	if only != "silent" {
		err := compare("handshakes", transport.LaneQUIC, turns, func(j *job) (order, error) { return order{At: j.at, Count: handshakes}, nil })
		if err != nil || only != "" {
			return err
		}
	}
	return compare("silent", transport.LaneLocal, turns, func(*job) (order, error) {
		at, err := socketOf("/proc/self")
		return order{At: at, Count: silent, Seconds: 5}, err
	})
}

// compare floods and burns in turns.
func compare(role, lane string, turns int, with func(*job) (order, error)) error {
	at, err := freePort()
	if err != nil {
		return err
	}
	j, err := start(lane, at)
	if err != nil {
		return err
	}
	defer j.stop() //nolint:errcheck // it was stopped before, where it matters
	o, err := with(j)
	if err != nil {
		return err
	}
	var flooded, burnt float64
	var worst time.Duration
	dialled := 0
	for turn := range turns {
		calls, wall, cpu, dials, err := j.window(func() (float64, float64, error) { return child(role, o) })
		if err != nil {
			return err
		}
		beside, _, spent, _, err := j.window(func() (float64, float64, error) { return child(elsewhere(role, o, wall, cpu)) })
		if err != nil {
			return err
		}
		worst, dialled = max(worst, slices.Max(append(dials, 0))), dialled+len(dials)
		fmt.Printf("%-10s turn %d: %6.0f calls/s in %4.1f s of flood (%.1f s of processor), %6.0f beside the burner (%.1f s): %.3f; %d dialled, the slowest in %v\n",
			role, turn+1, calls, wall, cpu, beside, spent, calls/beside, len(dials), slices.Max(append(dials, 0)).Round(time.Millisecond))
		flooded, burnt = flooded+calls, burnt+beside
	}
	fmt.Printf("%-10s in all: %.3f of the calls beside the burner; %d dialled, the slowest in %v\n", role, flooded/burnt, dialled, worst.Round(time.Millisecond))
	switch {
	case dialled == 0 || worst > dialMost:
		return fmt.Errorf("%s: %d workers dialled, the slowest in %v; expected some, each within %v", role, dialled, worst, dialMost)
	case flooded < ratioGoal*burnt:
		return fmt.Errorf("%s: %.3f of the calls; expected %.1f", role, flooded/burnt, ratioGoal)
	}
	return j.stop()
}
