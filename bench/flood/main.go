//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/weft-project/weft/transport"
)

const (
	dialMost  = 2 * time.Second
	ratioGoal = 0.9
	nobody    = 65534 // as whom a flood runs where root may say so
)

// flags are of one run.
type flags struct {
	only                      string
	turns                     int
	handshakes, silent, store int
}

func main() {
	var f flags
	role := flag.String("role", "", "what a process of this program does that it has started itself")
	arg := flag.String("arg", "", "and with what")
	flag.IntVar(&f.turns, "turns", 3, "turns of flood and burner")
	flag.IntVar(&f.handshakes, "handshakes", 10_000, "that stall, in each turn")
	flag.StringVar(&f.only, "only", "", "one of handshakes, tokens, marked, silent and store; empty: all but marked")
	flag.IntVar(&f.silent, "silent", 1_000, "connections to the local socket")
	flag.IntVar(&f.store, "store", 10_000, "silent connections to the store")
	flag.Parse()
	roles := map[string]func(order) error{"handshakes": floodHandshakes, "silent": floodSocket, "store": floodStore, "burn": burn}
	var err error
	if do := roles[*role]; do != nil {
		err = play(*arg, do)
	} else {
		err = f.measure()
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
	// What dials have: a token that nobody gave, or marks that were overheard.
	Tokens bool     `json:",omitempty"`
	Marks  [][]byte `json:",omitempty"`
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
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	start := time.Now()
	err = cmd.Run()
	s := cmd.ProcessState
	return time.Since(start).Seconds(), (s.UserTime() + s.SystemTime()).Seconds(), err
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

// dials are stalled handshakes with a worker.
func (f flags) dials(tokens, marked bool) func() (*job, order, error) {
	return func() (*job, order, error) {
		j, x, err := startWorkers(transport.LaneQUIC)
		if err != nil {
			return nil, order{}, err
		}
		o := order{At: x.at, Count: f.handshakes, Tokens: tokens}
		if marked {
			var member transport.Network
			if member, err = x.newcomer(); err == nil {
				o.Marks, err = overhear(member)
			}
		}
		return j, o, err
	}
}

func (f flags) measure() error {
	floods := []struct {
		name, role string
		start      func() (*job, order, error)
	}{
		{"handshakes", "handshakes", f.dials(false, false)},
		{"tokens", "handshakes", f.dials(true, false)},
		{"marked", "handshakes", f.dials(false, true)},
		{"silent", "silent", func() (*job, order, error) {
			j, _, err := startWorkers(transport.LaneLocal)
			if err != nil {
				return nil, order{}, err
			}
			at, err := socketOf("/proc/self")
			return j, order{At: at, Count: f.silent, Seconds: 5}, err
		}},
		{"store", "store", func() (*job, order, error) {
			j, at, err := startClients()
			return j, order{At: at, Count: f.store, Seconds: 15}, err
		}},
	}
	var errs []error
	for _, x := range floods {
		if f.only == "" && x.name != "marked" || f.only == x.name {
			errs = append(errs, compare(x.name, x.role, f.turns, x.start))
		}
	}
	if len(errs) == 0 {
		return fmt.Errorf("-only %q: expected handshakes, tokens, marked, silent or store", f.only)
	}
	return errors.Join(errs...)
}

// compare floods and burns in turns.
func compare(name, role string, turns int, start func() (*job, order, error)) error {
	j, o, err := start()
	if err != nil {
		return err
	}
	defer j.stop() //nolint:errcheck // it was stopped before, where it matters
	var flooded, burnt, own, ownBurnt float64
	var worst time.Duration
	dialled := 0
	for turn := range turns {
		flood, err := j.watch(func() (float64, float64, error) { return child(role, o) })
		if err != nil {
			return err
		}
		beside, err := j.watch(func() (float64, float64, error) { return child(elsewhere(role, o, flood.wall, flood.cpu)) })
		if err != nil {
			return err
		}
		// What the burner leaves of the processors may be more than what the flood has left, or
		// less.
		fair := beside.calls * left(flood) / left(beside)
		slowest := slices.Max(append(flood.dials, 0))
		worst, dialled = max(worst, slowest), dialled+len(flood.dials)
		fmt.Printf("%-10s turn %d: %6.0f calls/s in %4.1f s of flood (%.1f s of processor), %6.0f in %4.1f s beside the burner (%.1f s): %.3f; %d dialled, the slowest in %v\n",
			name, turn+1, flood.calls, flood.wall, flood.cpu, beside.calls, beside.wall, beside.cpu, flood.calls/fair, len(flood.dials), slowest.Round(time.Millisecond))
		flooded, burnt = flooded+flood.calls, burnt+fair
		own, ownBurnt = own+flood.own, ownBurnt+beside.own
	}
	fmt.Printf("%-10s in all: %.3f of the calls beside the burner; the job's own processor time for each: %.1f µs, and %.1f µs beside the burner; %d dialled, the slowest in %v\n",
		name, flooded/burnt, 1e6*own/float64(turns), 1e6*ownBurnt/float64(turns), dialled, worst.Round(time.Millisecond))
	switch {
	case dialled == 0 || worst > dialMost:
		return fmt.Errorf("%s: %d workers dialled, the slowest in %v; expected some, each within %v", name, dialled, worst, dialMost)
	case flooded < ratioGoal*burnt:
		return fmt.Errorf("%s: %.3f of the calls; expected %.1f", name, flooded/burnt, ratioGoal)
	}
	return j.stop()
}

// left is how many processors the other thing has left to the job.
func left(w window) float64 { return max(float64(runtime.NumCPU())-w.cpu/w.wall, 0.1) }
