package process

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/outer"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// crowd is how many volunteers train to the end: as soon as they are so many they make some more
// exchanges.
const crowd = 5

// volunteer is a worker of an agent: it makes inner steps that add 1, and exchanges them.
func volunteer(c context.Context) error {
	m, err := elastic.Join(c)
	if err != nil {
		return err
	}
	defer m.Close()
	p, rounds := autodiff.New(make([]float32, 1000)), uint64(0)
	cfg := outer.Config{Every: 4, FirstCalls: true, LR: 1, Momentum: optim.Zero, Changed: func(ch outer.Change) {
		fmt.Printf("%s: lost %v, new %v\n", ch.Members[ch.Rank], ch.Lost, ch.Came)
	}}
	err = outer.Each(c, m, []*autodiff.Tensor{p}, cfg, func(c context.Context, e *elastic.Epoch, l *outer.Loop) error {
		fmt.Printf("worker%d of %d is process %d at exchange %d\n", e.Rank, e.World, os.Getpid(), l.Rounds())
		last := uint64(math.MaxUint64)
		if e.World == crowd {
			last = l.Rounds() + 20
		}
		for rounds = l.Rounds(); rounds < last; rounds = l.Rounds() {
			time.Sleep(5 * time.Millisecond) // a step takes so long
			v, err := autodiff.Values[float32](p)
			if err != nil {
				return err
			}
			for i := range v {
				v[i]++
			}
			if err := autodiff.Assign([]*autodiff.Tensor{p}, []*autodiff.Tensor{autodiff.New(v)}); err != nil {
				return err
			}
			if err := l.Step(c); err != nil {
				return err
			}
			if l.Rounds() > rounds {
				fmt.Printf("worker%d has made exchange %d\n", e.Rank, l.Rounds())
			}
		}
		err := l.Finish(c)
		rounds = l.Rounds()
		return err
	})
	if err != nil {
		return err
	}
	v, err := autodiff.Values[float32](p)
	fmt.Printf("the end: %v after %d exchanges\n", v[:3], rounds)
	return err
}

// runVolunteer is a process that an agent has started.
func runVolunteer() {
	if err := volunteer(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestVolunteersAreKilledAndComeAndAllEndAtTheSame has an agent with three workers, of which the
// last and then the first are killed, and a second agent that comes later with two more.
func TestVolunteersAreKilledAndComeAndAllEndAtTheSame(t *testing.T) {
	leak.Check(t)
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	server, err := store.Serve(store.ServerConfig{Addr: "127.0.0.1:0"})
	require.NoError(t, err)
	defer server.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	var out proctest.Output
	c, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	spec := agent.Spec{
		Program: self, NprocPerNode: 3, MinNodes: 1, MaxNodes: 2, Endpoint: server.Addr(), RunID: "volunteers", Token: transport.NewToken(),
		MaxRestarts: 5, LastCall: -1, Grace: time.Second, Stdout: &out, Stderr: &out,
	}
	ends := make(chan error, 2)
	start := func(workers int) {
		spec := spec
		spec.NprocPerNode = workers
		go func() { _, err := agent.Run(c, spec); ends <- err }()
	}
	start(3)
	out.Await(t, "worker0 has made exchange 3\n", 1)
	for i, victim := range []string{"worker2", "worker0"} {
		at := regexp.MustCompile(victim+` of 3 is process (\d+)`).FindAllStringSubmatch(out.String(), -1)
		require.NotEmpty(t, at)
		pid, err := strconv.Atoi(at[len(at)-1][1])
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		out.Await(t, "new ["+victim+"]", 3)
		out.Await(t, "starting it again", i+1)
		out.Await(t, victim+" has made exchange ", 3+strings.Count(out.String(), victim+" has made exchange "))
	}
	start(2)
	for range 2 {
		require.NoError(t, <-ends, "%s", &out)
	}
	said := regexp.MustCompile(`the end: .*`).FindAllString(out.String(), -1)
	require.Len(t, said, crowd, "%s", &out)
	for _, line := range said {
		require.Equal(t, said[0], line)
	}
	require.NotContains(t, said[0], "[0 ")
	require.Equal(t, 2, strings.Count(out.String(), "starting it again"), "nobody else is started again: %s", &out)
}
