package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/places"
	"github.com/weft-project/weft/bench/gpu/internal/report"
	"github.com/weft-project/weft/internal/soak"
)

// contactTime is what bench/gpu/contact.sh gives the check.
const contactTime = 555 * time.Second

// contactPlan is the plan of a part on a machine that has everything.
func contactPlan(t *testing.T, p part) []step {
	dir := bundle(t, map[string]string{"python3": "", "compute-sanitizer": ""})
	t.Setenv("PATH", dir)
	o := options{at: "cuda:0", part: p, dir: "/bundle", self: "/bundle/gpucheck", rounds: 30}
	return o.chosen(plan(o))
}

// drive runs a course on a clock of its own; takes says how long a step would take. It returns when
// each step began, and the end.
func drive(c *course, takes func(s step) time.Duration) (begins map[string]time.Duration, end time.Duration) {
	now := time.Unix(0, 0)
	begins = map[string]time.Duration{}
	for {
		s, limit, more := c.next(now)
		if !more {
			return begins, now.Sub(time.Unix(0, 0))
		}
		begins[s.name] = now.Sub(time.Unix(0, 0))
		took := takes(s)
		e := ending{late: took > limit}
		now = now.Add(min(took, limit))
		if e.late {
			e.signal = syscall.SIGQUIT
			now = now.Add(quitting)
		}
		c.ended(now, e)
	}
}

func TestBothPartsFitAndHaveTheStepsThatTheyAreFor(t *testing.T) {
	for p, names := range map[part]string{
		first:  "machine,python,device,driver,fault,kernels,generated kernels,gradients,device maps,training,bench correct,hopper,bench copy 1,bench bound 1,bench large 1,bench gpt 1,bench launch 1,bench split 1",
		second: "machine,python,device,bench small 1,bench product 1,bench large 2,bench gpt 2,bench split 2,sanitizer",
	} {
		steps := contactPlan(t, p)
		var need, correctness time.Duration
		for _, s := range steps {
			require.Positive(t, s.need, s.name)
			require.LessOrEqual(t, s.need, s.limit, s.name)
			need += s.need
			if s.part == both || s.part == first && s.must {
				correctness += s.need
			}
		}
		require.LessOrEqual(t, need, contactTime-grace, p.String())
		require.LessOrEqual(t, correctness, 280*time.Second)
		for name := range strings.SplitSeq(names, ",") {
			require.True(t, slices.ContainsFunc(steps, func(s step) bool { return s.name == name }), name)
		}
	}
}

// A kernel that faults costs all tests of its process.
func TestKernelsThatProgramsAskForAreTriedApartFromTheOthers(t *testing.T) {
	steps := contactPlan(t, first)
	find := func(name string) (int, step) {
		k := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
		require.GreaterOrEqual(t, k, 0, name)
		return k, steps[k]
	}
	_, others := find("kernels")
	at, apart := find("hopper")
	last, _ := find("bench correct")
	require.Equal(t, last+1, at)
	require.Equal(t, []string{"gpu.test", "-test.skip=" + experimental}, others.argv)
	require.Equal(t, []string{"gpu.test", "-test.run=" + experimental}, apart.argv)
	require.True(t, others.must)
	require.False(t, apart.must)
	require.True(t, apart.experiment)
	require.False(t, others.experiment)
	file, err := parser.ParseFile(token.NewFileSet(), "../../kernels/gpu/hopper_test.go", nil, 0)
	require.NoError(t, err)
	launching := 0
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is || !strings.HasPrefix(f.Name.Name, "Test") {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is && types.ExprString(call) == "hopper(t, nil)" {
				launching++
				require.Regexp(t, experimental, f.Name.Name)
			}
			return true
		})
	}
	require.Positive(t, launching)
}

func TestWhereEachStepHangsTheOthersHaveTheirTime(t *testing.T) {
	for _, p := range []part{first, second} {
		steps := contactPlan(t, p)
		for _, hangs := range steps {
			c := newCourse(steps, time.Unix(0, 0), contactTime)
			_, end := drive(c, func(s step) time.Duration {
				if s.name == hangs.name {
					return time.Hour
				}
				return s.need
			})
			require.LessOrEqual(t, end, contactTime+quitting)
			for k, o := range c.out {
				switch {
				case o.Name != hangs.name:
					require.Equal(t, report.OK, o.Verdict, "%s while %s hangs: %s", o.Name, hangs.name, o.Why)
				case steps[k].long:
					require.Equal(t, report.LeftOut, o.Verdict)
				default:
					require.Equal(t, report.Late, o.Verdict)
				}
			}
		}
	}
}

func TestWhereAllStepsHangTheBenchmarksBeginAllTheSame(t *testing.T) {
	steps := contactPlan(t, first)
	c := newCourse(steps, time.Unix(0, 0), contactTime)
	begins, end := drive(c, func(step) time.Duration { return time.Hour })
	require.LessOrEqual(t, begins["bench copy 1"], 340*time.Second)
	require.LessOrEqual(t, end, contactTime+quitting)
	for _, o := range c.out {
		require.Equal(t, report.Late, o.Verdict, o.Name)
	}
}

// However long steps take, time is never overrun, and each step ends with a verdict that fits what
// it took.
func TestACourseKeepsToItsTimeWhateverTheStepsTake(t *testing.T) {
	for n := range soak.Cases(200) {
		src := rand.New(rand.NewPCG(uint64(n), 1))
		var steps []step
		for k := range src.IntN(20) {
			need := time.Duration(1+src.IntN(50)) * time.Second
			steps = append(steps, step{name: string(rune('a' + k)), part: part(src.IntN(3)), need: need, limit: need * time.Duration(1+src.IntN(4)), long: src.IntN(8) == 0})
		}
		slices.SortStableFunc(steps, func(a, b step) int { return int(a.part - b.part) })
		budget := time.Duration(src.IntN(1000)) * time.Second
		c := newCourse(steps, time.Unix(0, 0), budget)
		took := map[string]time.Duration{}
		begins, end := drive(c, func(s step) time.Duration {
			took[s.name] = time.Duration(src.IntN(200)) * time.Second
			return took[s.name]
		})
		require.LessOrEqual(t, end, budget+quitting, n)
		for k, o := range c.out {
			began, begun := begins[o.Name]
			switch o.Verdict {
			case report.OK:
				require.LessOrEqual(t, took[o.Name], steps[k].limit, n)
			case report.Late:
				require.True(t, begun)
				require.GreaterOrEqual(t, took[o.Name], steps[k].need, n)
			case report.LeftOut:
				require.True(t, !begun || steps[k].long || began+steps[k].need >= budget, "%d: %v", n, o)
			default:
				require.Fail(t, "a step has no verdict", "%d: %v", n, o)
			}
		}
	}
}

func TestAStepIsJudgedByHowItEnded(t *testing.T) {
	for _, k := range []struct {
		e             ending
		verdict, says string
	}{
		{ending{}, report.OK, ""},
		{ending{code: 3}, report.Failed, "exit status 3"},
		{ending{signal: syscall.SIGSEGV, code: -1}, report.Failed, "ended by SIGSEGV (segmentation fault)"},
		{ending{late: true, signal: syscall.SIGKILL}, report.Late, "ended after 1m0s"},
		{ending{stopped: true, signal: syscall.SIGKILL}, report.Interrupted, "the whole check was ended"},
		{ending{err: "no such file"}, report.LeftOut, "no such file"},
		{ending{late: true, stuck: true}, report.Late, "could not be ended"},
		{ending{left: 2}, report.OK, "left behind and that were ended: 2"},
	} {
		c := newCourse([]step{{name: experimental, need: time.Second, limit: time.Minute}}, time.Unix(0, 0), time.Hour)
		_, _, more := c.next(time.Unix(0, 0))
		require.True(t, more)
		require.Equal(t, report.Running, c.out[0].Verdict)
		c.ended(time.Unix(7, 0), k.e)
		require.Equal(t, k.verdict, c.out[0].Verdict)
		require.Contains(t, c.out[0].Why, k.says)
		require.InDelta(t, 7, c.out[0].Seconds, 1e-9)
	}
}

func TestWithoutAGPUOrPyTorchWhatNeedsItIsLeftOut(t *testing.T) {
	steps := []step{
		{name: "python", limit: time.Minute, aside: true}, {name: "torch", limit: time.Minute, aside: true}, {name: "device", limit: time.Minute},
		{name: "kernels", limit: time.Minute, must: true},
	}
	c := newCourse(steps, time.Unix(0, 0), time.Hour)
	says := map[string]string{"python": `{"case":"python","error":"ImportError: no torch"}`, "device": `{"case":"gpu","error":"no CUDA driver","none":true}`}
	for {
		s, _, more := c.next(time.Unix(0, 0))
		if !more {
			break
		}
		c.ended(time.Unix(1, 0), ending{lines: linesOf(says[s.name])})
	}
	require.Equal(t, report.LeftOut, c.out[1].Verdict)
	require.Equal(t, "there is no PyTorch", c.out[1].Why)
	require.Equal(t, report.LeftOut, c.out[3].Verdict)
	require.Equal(t, "there is no GPU", c.out[3].Why, "the driver's words are told once")
	require.Contains(t, c.out[2].Why, "there is no GPU")
	r := report.Result{State: report.Complete, Date: "2026-11-23", Steps: c.out}
	r.Learn()
	page := r.Markdown()
	require.Contains(t, page, "# gpucheck: no GPU to check")
	require.Contains(t, page, "**No GPU to check: no CUDA driver**")
	require.Equal(t, 1, strings.Count(page, "no CUDA driver"), page)
	require.Equal(t, 1, strings.Count(page, "no torch"), page)
}

func TestStepsThatThisMachineCannotHaveAreListedWithTheReason(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	reasons := func(at places.Place) map[string]string {
		steps := plan(options{at: at, dir: "/bundle", self: "/bundle/gpucheck", rounds: 30})
		c, why := newCourse(steps, time.Unix(0, 0), time.Hour), map[string]string{}
		drive(c, func(s step) time.Duration { return s.need })
		for _, o := range c.out {
			if o.Verdict == report.LeftOut {
				why[o.Name] = o.Why
			}
		}
		return why
	}
	names := []string{"python", "sanitizer", "torch attention 1", "torch attention 2", "torch bound 1", "torch copy 1", "torch copy 2", "torch gpt 1", "torch gpt 2", "torch large 1", "torch large 2", "torch product 1", "torch small 1", "torch small 2"}
	bare, interpreted := reasons("cuda:0"), reasons(places.Interpreter)
	require.Equal(t, names, slices.Sorted(maps.Keys(bare)))
	require.Equal(t, names, slices.Sorted(maps.Keys(interpreted)))
	require.Equal(t, "there is no python3", bare["torch copy 1"])
	require.Equal(t, "there is no compute-sanitizer", bare["sanitizer"])
	require.Equal(t, "PyTorch does not run on the interpreter", interpreted["torch copy 1"])
	require.Equal(t, "compute-sanitizer does not run on the interpreter", interpreted["sanitizer"])
}
