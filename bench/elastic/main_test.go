package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/leak"
)

// TestMain makes the test binary an agent, as weft run is one, or a worker.
func TestMain(m *testing.M) {
	err := error(nil)
	if to, ok := os.LookupEnv(witnessVariable); !ok {
		os.Exit(m.Run())
	} else if len(os.Args) > 1 && os.Args[1] == "run" {
		err = runAgent(os.Args[2:])
	} else {
		err = report(to)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runAgent(args []string) error {
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	spec := agent.Spec{Stdout: os.Stdout, Stderr: os.Stderr}
	f.IntVar(&spec.NprocPerNode, "nproc-per-node", 0, "")
	f.IntVar(&spec.MaxRestarts, "max-restarts", 0, "")
	f.StringVar(&spec.Endpoint, "rdzv-endpoint", "", "")
	f.StringVar(&spec.RunID, "rdzv-id", "", "")
	var nnodes, conf, policy string
	f.StringVar(&nnodes, "nnodes", "", "")
	f.StringVar(&conf, "rdzv-conf", "", "")
	f.StringVar(&policy, "restart-policy", "worker", "")
	for _, name := range []string{"rdzv-backend", "monitor-interval"} {
		f.String(name, "", "")
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	low, high, _ := strings.Cut(nnodes+":"+nnodes, ":")
	if _, err := fmt.Sscan(low+" "+high[:1], &spec.MinNodes, &spec.MaxNodes); err != nil {
		return err
	}
	seconds := 0
	if _, err := fmt.Sscanf(conf, "last_call_timeout=%d", &seconds); err != nil {
		return err
	}
	if spec.LastCall = time.Duration(seconds) * time.Second; seconds == 0 {
		spec.LastCall = time.Millisecond
	}
	if policy == "group" {
		spec.Policy = rdzv.RestartGroup
	}
	spec.Program, spec.Args = f.Arg(0), f.Args()[1:]
	_, err := agent.Run(context.Background(), spec)
	return err
}

func measured(t *testing.T, group bool) (*bench, *bytes.Buffer) {
	leak.Check(t)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector makes every exit take a second otherwise
	t.Setenv("TMPDIR", t.TempDir())
	self, err := os.Executable()
	require.NoError(t, err)
	var out bytes.Buffer
	return &bench{launchers: []launcher{{name: "ours", argv: []string{self, "run"}, group: group}}, worker: []string{self}, out: &out}, &out
}

func TestEveryPartMeasuresJobsOfOneAgentAndOfTwoAndLeavesNoFile(t *testing.T) {
	b, out := measured(t, false)
	require.NoError(t, b.run(t.Context(), []shape{{1, "1:2", 0}, {2, "1:2", 30}}, ""))
	for _, want := range []string{"alone/workers=2", "alone/workers=4", "end/agents=1/nnodes=1:2", "end-but-last-call/agents=1/nnodes=1:2", "end/agents=2/nnodes=1:2",
		"replace/agents=1/nnodes=1:2", "whole/agents=1/nnodes=1:2", "replace/agents=2/nnodes=1:2", "whole/agents=2/nnodes=1:2"} {
		require.Regexp(t, `(?m)^BenchmarkElastic/lane=ours/`+want+`\t1\t\d+ ns/op\t[\d.e+]+ ms$`, out.String())
	}
	require.Equal(t, 9, strings.Count(out.String(), "\n"))
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestWhoKeepsItsProcessIsWhatThePolicySays(t *testing.T) {
	b, out := measured(t, true)
	require.NoError(t, b.run(t.Context(), []shape{{2, "2", 1}}, "replace"))
	require.Contains(t, out.String(), "/replace/agents=2/nnodes=2\t")
	l := &b.launchers[0]
	l.argv = append(l.argv, "--restart-policy=worker")
	l.group = false // it would ask for the other policy
	require.NoError(t, b.run(t.Context(), []shape{{2, "2", 1}}, "replace"))
	l.argv[2] = "--restart-policy=group"
	require.ErrorContains(t, b.run(t.Context(), []shape{{2, "2", 1}}, "replace"), "expected 3 of 4 workers to keep their processes, got ")
}

func TestAJobThatFailsIsAnErrorWithItsAgentsWords(t *testing.T) {
	b, _ := measured(t, false)
	b.worker = []string{"/nowhere/to/be/found"}
	require.ErrorContains(t, b.run(t.Context(), []shape{{1, "1", 1}}, "end"), "/nowhere/to/be/found")
}

func TestWhatIsNotKnownIsRefused(t *testing.T) {
	require.ErrorContains(t, (&bench{}).run(t.Context(), nil, "end,start"), `got "start"`)
	_, err := chosen(t.Context(), "mpirun", "", "")
	require.ErrorContains(t, err, `got "mpirun"`)
	_, err = workers("perl", "")
	require.ErrorContains(t, err, `got "perl"`)
}

func TestTorchrunGetsTheSameFlagsInItsOwnSpelling(t *testing.T) {
	s := shape{1, "1:2", 1}
	ours := launcher{argv: []string{"weft", "run"}}.command(s, "h:1", []string{"w"})
	theirs := launcher{argv: []string{"torchrun"}, python: true}.command(s, "h:1", []string{"w"})
	require.Equal(t, "weft run --nnodes=1:2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=h:1 --rdzv-id=bench --monitor-interval=0.1 "+
		"--max-restarts=9 --rdzv-conf=last_call_timeout=1 w", strings.Join(ours, " "))
	require.Equal(t, "torchrun --nnodes=1:2 --nproc_per_node=2 --rdzv_backend=c10d --rdzv_endpoint=h:1 --rdzv_id=bench --monitor_interval=0.1 "+
		"--max_restarts=9 --rdzv_conf=last_call_timeout=1 --redirects=9:1 --tee=9:1 --no_python w", strings.Join(theirs, " "))
}
