package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// step is a process of the check.
type step struct {
	name  string
	limit time.Duration
	argv  []string // the program is a file of the bundle, or a path
	env   []string
	lines bool // it prints lines of JSON, of benchmarks
	must  bool // the result is not green without it
	aside bool // its failure is not Weft's: what Weft is compared with
	long  bool // nobody knows how long it takes: it is not wrong because its time is up
}

// outcome is what became of a step.
type outcome struct {
	Name    string           `json:"name"`
	Verdict string           `json:"verdict"` // ok, failed, late, or left out
	Seconds float64          `json:"seconds"`
	Why     string           `json:"why,omitempty"` // and the end of what it printed
	Lines   []map[string]any `json:"lines,omitempty"`
	Must    bool             `json:"must,omitempty"`
	Aside   bool             `json:"aside,omitempty"`
}

// The verdicts. What is left out had no time, or what it needs is not here.
const (
	ok      = "ok"
	failed  = "failed"
	late    = "late"
	leftOut = "left out"
)

// told is how many bytes of a failed step's output are kept.
const told = 6000

// run runs a step in dir, for at most its limit and what is left of the budget.
func (s step) run(c context.Context, dir string, left time.Duration) outcome {
	out := outcome{Name: s.name, Must: s.must, Aside: s.aside}
	program := s.argv[0]
	if !filepath.IsAbs(program) {
		program = filepath.Join(dir, program)
	}
	limit := min(s.limit, left)
	switch _, err := os.Stat(program); {
	case err != nil:
		out.Verdict, out.Why = leftOut, err.Error()
		return out
	case limit <= 0 || c.Err() != nil:
		out.Verdict, out.Why = leftOut, "no time is left"
		return out
	}
	c, cancel := context.WithTimeout(c, limit)
	defer cancel()
	var said, errs bytes.Buffer
	cmd := exec.CommandContext(c, program, s.argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &errs
	cmd.Env = append(os.Environ(), s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it started ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	began := time.Now()
	err := cmd.Run()
	out.Seconds = time.Since(began).Seconds()
	if s.lines {
		out.Lines = linesOf(said.Bytes())
	}
	switch {
	case err == nil:
		out.Verdict = ok
		return out
	case errors.Is(c.Err(), context.DeadlineExceeded) && s.long:
		out.Verdict, out.Why = leftOut, fmt.Sprintf("nothing was wrong until its time was up, after %v", limit)
	case errors.Is(c.Err(), context.DeadlineExceeded):
		out.Verdict, out.Why = late, fmt.Sprintf("ended after %v", limit)
	default:
		out.Verdict, out.Why = failed, err.Error()
	}
	if s.lines {
		said.Reset()
	}
	out.Why += "\n" + end(said.String()) + end(errs.String())
	return out
}

// end is what of a text says why something failed: of a Go test, from what failed on. Of a long one the middle is left out: a crash says at its
// beginning what it is, and most others at their end.
func end(s string) string {
	if at := strings.Index(s, "--- FAIL"); at >= 0 {
		s = s[at:]
	}
	if len(s) <= told {
		return s
	}
	return s[:told/2] + "\n…\n" + s[len(s)-told/2:]
}

// linesOf is the lines of JSON in what a program printed.
func linesOf(said []byte) (all []map[string]any) {
	for text := range bytes.Lines(said) {
		var l map[string]any
		if json.Unmarshal(text, &l) == nil && l["case"] != nil {
			all = append(all, l)
		}
	}
	return all
}
