package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// The test binary is also the program: a worker is this binary with RANK set.
func TestMain(m *testing.M) {
	if os.Getenv("RANK") == "" {
		os.Exit(m.Run())
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// small is a run that is over soon.
var small = []string{"--batch", "64", "--dim", "16", "--steps"}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x / float64(len(v))
	}
	return sum
}

func TestThreeTrainersLearnWordsOnOneServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "words.png")
	var out, errs bytes.Buffer
	require.Equal(t, 0, run(t.Context(), append(small, "800", "--lr", "0.3", "--json", "--plot", file), &out, &errs), "%s", &errs)
	var r result
	require.NoError(t, json.Unmarshal(out.Bytes(), &r), "%s", &out)
	require.Equal(t, map[string]int{"trainer1": 800, "trainer2": 800, "trainer3": 800}, r.Steps)
	require.Empty(t, r.Lost)
	require.Len(t, r.Losses, 2400)
	guess := math.Log(64)
	require.InDelta(t, guess, r.Losses[0], 0.2)
	require.Less(t, mean(r.Losses[2000:]), guess-0.02)
	require.Greater(t, r.Likeness, 0.3)
	require.Len(t, r.Nearest["red"], 6)
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	require.Greater(t, img.Bounds().Dx(), 600)
}

// trial is a server in this process, and trainers in others.
type trial struct {
	t      *testing.T
	v      *server
	w      *rpc.Worker
	place  store.Rendezvous
	env    []string
	args   []string
	out    bytes.Buffer
	before func(c context.Context, trainer int) // in every lookup
}

func newTrial(t *testing.T, trainers int, args ...string) *trial {
	tr := &trial{t: t, args: append(args, "--plot", "", "--trainers", fmt.Sprint(trainers))}
	shop, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, shop.Close()) })
	host, port, err := net.SplitHostPort(shop.Addr())
	require.NoError(t, err)
	t.Setenv("WEFT_TOKEN", secrettest.Token("job"))
	tr.env = append(os.Environ(), "TORCHELASTIC_USE_AGENT_STORE=True", "MASTER_ADDR="+host, "MASTER_PORT="+port, fmt.Sprint("WORLD_SIZE=", trainers+1))
	s, err := parse(tr.args, io.Discard)
	require.NoError(t, err)
	d, err := readCorpus("", s.minCount)
	require.NoError(t, err)
	tr.v = newServer(s, d, &tr.out)
	tr.v.hook = func(c context.Context) {
		p, _ := ctx.From(c)
		tr.before(c, int(p.ID().Creator()))
	}
	client, err := store.Dial(t.Context(), store.ClientConfig{Addr: shop.Addr()})
	require.NoError(t, err)
	tr.place = store.Rendezvous{Store: client, WorldSize: trainers + 1}
	tr.w, err = tr.v.join(t.Context(), tr.place)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tr.w.Close()); require.NoError(t, tr.place.Close()) })
	return tr
}

// start starts a trainer.
func (tr *trial) start(rank int) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(tr.t, err)
	cmd := exec.Command(self, tr.args...)
	cmd.Env = append(slices.Clone(tr.env), fmt.Sprint("RANK=", rank), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	require.NoError(tr.t, cmd.Start())
	tr.t.Cleanup(func() { _ = cmd.Process.Kill() }) // where the test failed; otherwise it has ended
	return cmd
}

func (tr *trial) passesOf(rank int) (n int) {
	for _, p := range tr.w.Passes() {
		if int(p.ID.Creator()) == rank {
			n++
		}
	}
	return n
}

// Trainer 2 is killed while it has a pass on the server, and the others may not finish before that.
func TestAKilledTrainerLeavesNoPassOnTheServerAndTheOthersGoOn(t *testing.T) {
	tr := newTrial(t, 3, append(small, "60")...)
	counts, arrived, gone := [4]int{}, make(chan struct{}), make(chan struct{})
	var locks [4]chan struct{}
	for i := range locks {
		locks[i] = make(chan struct{}, 1)
	}
	tr.before = func(c context.Context, trainer int) {
		locks[trainer] <- struct{}{} // a trainer looks up one thing at a time; this is for the race detector
		counts[trainer]++
		n := counts[trainer]
		<-locks[trainer]
		switch {
		case trainer == 2 && n == 15:
			close(arrived)
			<-c.Done()
		case trainer != 2 && n == 30:
			select {
			case <-gone:
			case <-c.Done():
			}
		}
	}
	type ending struct {
		lost []string
		err  error
	}
	ended := make(chan ending, 1)
	go func() {
		lost, err := tr.v.attend(t.Context(), tr.w, 3)
		ended <- ending{lost, err}
	}()
	one, two, three := tr.start(1), tr.start(2), tr.start(3)
	<-arrived
	require.Positive(t, tr.passesOf(2), "this one, and perhaps the one before, whose end the server is still to hear of")
	require.NoError(t, two.Process.Kill())
	require.Error(t, two.Wait())
	const lease = 30 * time.Second
	require.Eventually(t, func() bool { return tr.passesOf(2) == 0 }, lease, time.Millisecond)
	close(gone)
	require.NoError(t, one.Wait())
	require.NoError(t, three.Wait())
	end := <-ended
	require.NoError(t, end.err)
	require.Equal(t, []string{"trainer2"}, end.lost)
	require.Equal(t, 60, tr.v.steps["trainer1"])
	require.Equal(t, 60, tr.v.steps["trainer3"])
	require.Less(t, tr.v.steps["trainer2"], 15)
	require.Contains(t, tr.out.String(), "trainer2 is lost")
	require.NoError(t, tr.w.Settle(t.Context()))
	require.Empty(t, tr.w.Passes())
	require.Eventually(t, func() bool {
		runtime.GC() // the server leaves its own shares in the tables to the collector
		return tr.w.Owned() == 0
	}, lease, time.Millisecond, "tables and optimizers that the trainers referred to")
	require.NoError(t, tr.v.finish(end.lost, time.Second, io.Discard))
}

// killer is a writer that kills a trainer as soon as the server says which process it is.
type killer struct {
	bytes.Buffer
	trainer string
	killed  bool
}

func (k *killer) Write(p []byte) (int, error) {
	n, _ := k.Buffer.Write(p)
	var pid int
	if _, after, ok := strings.Cut(k.String(), k.trainer+" is here, process "); ok && !k.killed && strings.Contains(after, "\n") {
		if _, err := fmt.Sscan(after, &pid); err == nil {
			k.killed = syscall.Kill(pid, syscall.SIGKILL) == nil
		}
	}
	return n, nil
}

func TestTheProgramSucceedsWithoutATrainerThatIsKilled(t *testing.T) {
	out, errs := &killer{trainer: "trainer2"}, &bytes.Buffer{}
	require.Equal(t, 0, run(t.Context(), append(small, "600", "--plot", ""), out, errs), "%s\n%s", out, errs)
	require.True(t, out.killed)
	require.Contains(t, out.String(), "trainer2 is lost")
	require.Contains(t, out.String(), "trainers that go on: ")
	require.Contains(t, errs.String(), "was killed by signal 9 (SIGKILL); 3 workers left")
}

// Who starts the lost trainer again has its place filled: the world is open.
func TestATrainerThatIsStartedAgainTakesItsPlace(t *testing.T) {
	tr := newTrial(t, 2, append(small, "20")...)
	first, arrived := make(chan struct{}, 1), make(chan struct{})
	first <- struct{}{}
	again := make(chan struct{})
	tr.before = func(c context.Context, trainer int) {
		switch trainer {
		case 2:
			select {
			case <-first:
				close(arrived)
				<-c.Done()
			default:
			}
		case 1: // the server would be done otherwise
			select {
			case <-again:
			case <-c.Done():
			}
		}
	}
	ended := make(chan []string, 1)
	go func() {
		lost, err := tr.v.attend(t.Context(), tr.w, 2)
		require.NoError(t, err)
		ended <- lost
	}()
	one, two := tr.start(1), tr.start(2)
	<-arrived
	require.NoError(t, two.Process.Kill())
	require.Error(t, two.Wait())
	require.NoError(t, tr.start(2).Wait())
	close(again)
	require.NoError(t, one.Wait())
	require.Equal(t, []string{"trainer2"}, <-ended)
	require.Equal(t, map[string]int{"trainer1": 20, "trainer2": 20}, tr.v.steps)
}

func TestTheServerIsDoneWhenAllHaveComeAndGone(t *testing.T) {
	var a attendance
	require.False(t, a.over(2))
	a.come("trainer1", true)
	a.leave("trainer1")
	require.False(t, a.over(2), "another is still to come")
	a.come("trainer2", true)
	a.come("trainer2", true)
	require.False(t, a.over(2))
	a.come("trainer1", true)
	a.leave("trainer2")
	require.False(t, a.over(2), "one came again")
	a.leave("trainer1")
	require.True(t, a.over(2))
	a.come("trainer3", false)
	require.True(t, a.over(3), "it was gone before anybody looked")
}

func TestAWrongCommandLineIsRefusedWithAllThatIsWrong(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, 2, run(t.Context(), []string{"--trainers", "65", "--steps", "0", "--dim", "-1", "--batch", "99999", "--lr", "0", "--plot", "no/such/folder.png", "extra"}, &out, &errs))
	for _, part := range []string{"--trainers 65", "--steps 0", "--dim -1", "--batch 99999", "--lr 0", "no/such", `"extra"`} {
		require.Contains(t, errs.String(), part)
	}
	t.Setenv("RANK", "0")
	t.Setenv("WORLD_SIZE", "1")
	_, err := parse(nil, io.Discard)
	require.ErrorContains(t, err, "one server, and trainers")
	t.Setenv("WORLD_SIZE", "3")
	_, err = parse([]string{"--trainers", "3"}, io.Discard)
	require.ErrorContains(t, err, "the launcher started 3")
	s, err := parse(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 2, s.trainers)
	require.Equal(t, 0, run(t.Context(), []string{"--help"}, &out, &errs))
	require.True(t, strings.Contains(out.String(), "-min-count"))
}
