package main

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/bench/gpu/internal/report"
)

// step is a process of the check.
type step struct {
	name  string
	part  part
	need  time.Duration // what it should take: as much is kept for it while steps before it run
	limit time.Duration
	argv  []string // the program is a file of the bundle, or a path
	env   []string
	lines bool   // it prints lines of JSON
	last  string // a line that it prints when it has done everything: a driver may end a process, with 0 too
	must  bool   // the result is not green without it
	aside bool   // its failure is not Weft's: what Weft is compared with

	experiment bool // of what programs have to ask for: its failure is no verdict on the rest

	long   bool   // nobody knows how long it takes: it is not wrong because its time is up
	always bool   // -only does not leave it out
	not    string // why it cannot be run here
}

// ending is how a step's process ended.
type ending struct {
	err     string         // why there was no process
	code    int            // it exited with this
	signal  syscall.Signal // or was ended by this
	late    bool           // its time was up
	stopped bool           // the whole check was ended
	stuck   bool           // it is there still, as the system itself holds it
	unsaid  bool           // its last line is missing
	left    int            // processes that it had started and not ended
	text    string         // what it printed
	lines   []map[string]any
}

// course is the order of a check: which step is next and for how long, and what became of each. It
// does nothing itself and knows no clock.
type course struct {
	steps []step
	out   []report.Outcome // of the steps, in their order
	lead  part             // the first that has steps of its own
	over  time.Time        // when all time is used up
	at    int              // the step that is under way, or is next
	began time.Time        // when the step under way did
	limit time.Duration

	noGPU, noTorch bool // a step has said so
}

func newCourse(steps []step, now time.Time, budget time.Duration) *course {
	c := &course{steps: steps, over: now.Add(budget)}
	for _, s := range steps {
		if c.lead == both {
			c.lead = s.part
		}
		c.out = append(c.out, report.Outcome{Name: s.name, Verdict: report.Waiting, Must: s.must, Aside: s.aside, Experiment: s.experiment})
	}
	return c
}

// next begins the next step, and says how long it may take. After the last there is none.
func (c *course) next(now time.Time) (s step, limit time.Duration, more bool) {
	for ; c.at < len(c.steps); c.at++ {
		s, out := c.steps[c.at], &c.out[c.at]
		limit := c.allowed(now)
		switch {
		case c.noGPU:
			out.Verdict, out.Why = report.LeftOut, report.NoGPU
		case s.not != "":
			out.Verdict, out.Why = report.LeftOut, s.not
		case c.noTorch && s.aside:
			out.Verdict, out.Why = report.LeftOut, report.NoTorch
		case limit <= 0:
			out.Verdict, out.Why = report.LeftOut, "no time is left"
		default:
			out.Verdict, c.began, c.limit = report.Running, now, limit
			return s, limit, true
		}
	}
	return step{}, 0, false
}

// allowed is how long the next step may take: its limit, or less where the steps after it in its
// part would lack what they need, and what it takes to end them; but what it needs itself comes
// first, as the steps before are the more important ones.
func (c *course) allowed(now time.Time) time.Duration {
	s, left := c.steps[c.at], c.over.Sub(now)
	spare := left - quitting - patience
	for _, later := range c.steps[c.at+1:] {
		if later.not == "" && later.part <= max(s.part, c.lead) {
			spare -= later.need + quitting
		}
	}
	return min(s.limit, max(spare, min(s.need, left)))
}

// ended takes how the step under way ended.
func (c *course) ended(now time.Time, e ending) {
	s, out := c.steps[c.at], &c.out[c.at]
	c.at++
	out.Seconds, out.Output, out.Lines = now.Sub(c.began).Seconds(), e.text, e.lines
	out.Verdict, out.Why = s.verdict(e, c.limit)
	if e.stuck {
		out.Why += "; it could not be ended, and is there still"
	}
	if e.left > 0 && !e.late && !e.stopped {
		out.Why += fmt.Sprintf("; processes that it left behind and that were ended: %d", e.left)
	}
	out.Why = strings.TrimPrefix(out.Why, "; ")
	for _, l := range e.lines {
		switch {
		case report.Missing(l):
			c.noGPU, out.Why = true, report.NoGPU
		case l["case"] == "python" && l["error"] != nil:
			c.noTorch = true
		}
	}
}

// noTests is what a test binary says that has nothing to run, and passes.
const noTests = "testing: warning: no tests to run"

// verdict judges how a step ended, which had so much time.
func (s step) verdict(e ending, limit time.Duration) (verdict, why string) {
	limit = limit.Round(time.Millisecond)
	switch {
	case e.err != "":
		return report.LeftOut, e.err
	case e.stopped:
		return report.Interrupted, "the whole check was ended"
	case e.late && s.long:
		return report.LeftOut, fmt.Sprintf("nothing was wrong until its time was up, after %v", limit)
	case e.late && limit < s.need:
		return report.LeftOut, fmt.Sprintf("all time was used up: it had %v, and needs about %v", limit, s.need)
	case e.late:
		return report.Late, fmt.Sprintf("ended after %v", limit)
	case e.signal != 0:
		return report.Failed, fmt.Sprintf("ended by %s (%v)", unix.SignalName(e.signal), e.signal)
	case e.code != 0:
		return report.Failed, fmt.Sprintf("exit status %d", e.code)
	case e.unsaid:
		return report.Failed, fmt.Sprintf("exit status 0, but it did not come to its end: it has not printed %q", s.last)
	case strings.Contains(e.text, noTests):
		return report.Failed, "there are no such tests"
	}
	return report.OK, ""
}
