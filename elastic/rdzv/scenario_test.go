//go:build !race

package rdzv

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden logs anew")

// Each scenario is a file of lines: settings (min=2 max=3 …), then what happens at a time, "5s join
// a", and its golden log is what the leader decides at each.
func TestScenariosAreDecidedAsTheirLogsSay(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			got := play(t, file)
			golden := strings.TrimSuffix(file, ".txt") + ".log"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// play plays a scenario and returns its log.
func play(t *testing.T, file string) string {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	var s *State
	var cfg Config
	var log strings.Builder
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case s == nil:
			cfg = settings(t, fields)
			s, err = NewState(cfg)
			require.NoError(t, err)
		default:
			after, err := time.ParseDuration(fields[0])
			require.NoError(t, err, lines.Text())
			at := epochOfTime.Add(after)
			// The ticks that were due before, each at its time.
			ticks := 0
			for next := s.next(); !next.IsZero() && next.Before(at); next = s.next() {
				decide(&log, s, Event{}, next)
				ticks++
				require.Less(t, ticks, 100, "ticks that decide nothing")
			}
			e := happening(t, cfg, fields[1:])
			if (e.Kind == Fail || e.Kind == Done) && fields[len(fields)-1] != "late" {
				e.Round = s.round
			}
			decide(&log, s, e, at)
		}
	}
	return log.String()
}

func settings(t *testing.T, fields []string) Config {
	cfg := Config{}
	for _, f := range fields {
		k, v, _ := strings.Cut(f, "=")
		d, _ := time.ParseDuration(v)
		n, _ := strconv.Atoi(v)
		switch k {
		case "min":
			cfg.Min = n
		case "max":
			cfg.Max = n
		case "restarts":
			cfg.MaxRestarts = n
		case "policy":
			if v == "group" {
				cfg.Policy = RestartGroup
			}
		case "join":
			cfg.JoinTimeout = d
		case "settle":
			cfg.Settle = d
		case "lastcall":
			cfg.LastCall = d
		default:
			require.Fail(t, "unknown setting", f)
		}
	}
	return cfg
}

// happening reads "join a", "join a slots=2 role=ps want=1", "alive a", "leave a", "fail a 2",
// "fail a 2 late" (of the first round), "done a", "done a late", "close a", "tick".
func happening(t *testing.T, cfg Config, fields []string) Event {
	e := Event{}
	if len(fields) > 1 {
		e.ID = fields[1]
	}
	switch fields[0] {
	case "join":
		e.Kind, e.Config = Join, cfg
		e.Node = Node{ID: e.ID, Addr: "host-" + e.ID, Slots: 1}
		for _, f := range fields[2:] {
			k, v, _ := strings.Cut(f, "=")
			n, _ := strconv.Atoi(v)
			switch k {
			case "slots":
				e.Node.Slots = n
			case "role":
				e.Node.Role = v
			case "addr":
				e.Node.Addr = v
			case "want":
				e.Node.Want = n
			}
		}
	case "alive":
		e.Kind = KeepAlive
	case "leave":
		e.Kind = Leave
	case "done":
		e.Kind = Done
	case "close":
		e.Kind, e.Why = Close, "asked to"
	case "fail":
		e.Kind, e.Why = Fail, "exit code 1"
		e.Nth, _ = strconv.Atoi(fields[2])
	case "tick":
	default:
		require.Fail(t, "unknown event", fields[0])
	}
	return e
}

// decide logs what an event leads to.
func decide(log *strings.Builder, s *State, e Event, at time.Time) {
	before := s.counted
	actions, why := s.Decide(e, at)
	names := [...]string{"tick", "join", "alive", "leave", "fail", "done", "close"}
	fmt.Fprintf(log, "%v %s %s: %s\n", at.Sub(epochOfTime).Round(time.Microsecond), names[e.Kind], e.ID, why)
	for _, c := range s.recent(at) {
		if c.Nth > before {
			fmt.Fprintf(log, "    round %d: %s\n", c.Round, c.What)
		}
	}
	for _, a := range actions {
		what := [...]string{"place", "wait", "spare", "refuse", "restart", "lost", "finished"}[a.Kind]
		fmt.Fprintf(log, "    %s %s", a.ID, what)
		if p := a.Placement; a.Kind == Place || a.Kind == Restart {
			fmt.Fprintf(log, " round %d epoch %d node %d/%d workers %d+%d/%d role %d/%d master %s source %d stayed=%v restart=%v restarts %d",
				p.Round, p.Epoch, p.Rank, p.Nodes, p.First, p.Slots, p.World, p.RoleFirst, p.RoleWorld, p.MasterAddr, p.Source, p.Stayed, p.Restart, p.Restarts)
		}
		if a.Err != nil {
			fmt.Fprintf(log, " (%v)", a.Err)
		}
		if a.Kind == Place && a.Why != "" {
			fmt.Fprintf(log, ": %s", a.Why)
		}
		fmt.Fprintln(log)
	}
	sum := s.Summary()
	fmt.Fprintf(log, "    = %v round %d epoch %d: %d nodes, %d wait, %d spare\n", sum.Phase, sum.Round, sum.Epoch, sum.Nodes, sum.Waiting, sum.Redundant)
}
