package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-project/weft/bench/gpu/internal/flags"
	"github.com/weft-project/weft/bench/gpu/internal/report"
)

// runner runs the steps of a course, and writes what is known before each and after each.
type runner struct {
	*course
	report.Result
	dir, out       string    // of the bundle, and for the results
	env            []string  // of all steps
	logs           string    // a pattern of files in which cuBLASLt says what it cannot do; empty where it says it elsewhere
	unwritten      string    // what was last told of results that could not be written
	told           int       // steps of which the end was printed
	started        time.Time // when the check was
	stdout, stderr io.Writer
}

// run runs all steps. Ends c, so does the step that is under way, and no more is run.
func (r *runner) run(c context.Context) error {
	r.State = report.Running
	_ = r.save()
	for c.Err() == nil {
		s, limit, more := r.next(time.Now())
		r.print()
		if !more {
			r.State = report.Complete
			break
		}
		_ = r.save()
		e := s.run(c, r.dir, limit, r.environ())
		e.text = strings.TrimSpace(e.text + r.logged())
		r.ended(time.Now(), e)
		_ = r.save()
	}
	r.print()
	if r.State == report.Running {
		r.State = context.Cause(c).Error()
		fmt.Fprintln(r.stderr, "gpucheck:", r.State)
	}
	err := r.save()
	if r.NoGPU != "" {
		fmt.Fprintln(r.stderr, "gpucheck: no GPU to check:", r.NoGPU)
	}
	if err != nil {
		fmt.Fprintf(r.stdout, "\n%s\n", r.Markdown())
		return errUnwritten
	}
	fmt.Fprintf(r.stdout, "results in %s\n", filepath.Join(r.out, "result.md"))
	if !r.Green {
		return flags.ErrFailed
	}
	return nil
}

// save writes what is known.
func (r *runner) save() error {
	r.Steps = r.course.out
	r.Learn()
	r.Seconds, r.Green = time.Since(r.started).Seconds(), report.Green(r.Result)
	err := r.Write(r.out)
	if err != nil && err.Error() != r.unwritten {
		r.unwritten = err.Error()
		fmt.Fprintln(r.stderr, "gpucheck: the results cannot be written:", err)
	}
	return err
}

// print tells of the steps that are over.
func (r *runner) print() {
	for ; r.told < r.at; r.told++ {
		o := r.course.out[r.told]
		name := o.Name
		if o.Why != "" {
			name += ": " + o.Why
		}
		fmt.Fprintf(r.stdout, "%-11s %5.1f s  %s\n", o.Verdict, o.Seconds, name)
		if text := o.Shown(); text != "" && o.Verdict != report.OK {
			fmt.Fprintln(r.stdout, report.Indented(text))
		}
	}
}

// The variables that tell the driver where to keep what it compiles of PTX, Weft which cuBLASLt to
// use, and that where to say what it cannot do.
const (
	cacheVariable    = "CUDA_CACHE_PATH"
	libraryVariable  = "WEFT_CUBLASLT"
	logVariable      = "CUBLASLT_LOG_FILE"
	logLevelVariable = "CUBLASLT_LOG_LEVEL"
)

// share has the steps share what the driver compiles, which is new for this check, wherever it
// would lie otherwise: no home may be there, or none that can be written, and each process would
// compile everything again.
func (r *runner) share() (forget func()) {
	dir, err := os.MkdirTemp("", "gpucheck")
	if err != nil {
		fmt.Fprintf(r.stderr, "gpucheck: each step compiles all kernels anew: %v; name a folder that can be written in TMPDIR, or in %s\n", err, cacheVariable)
		return func() {}
	}
	if os.Getenv(cacheVariable) == "" {
		r.env = append(r.env, cacheVariable+"="+dir)
	}
	if os.Getenv(logVariable) == "" {
		name := filepath.Join(dir, "cublaslt.%i.log") // %i is the process
		r.env, r.logs = append(r.env, logVariable+"="+name, logLevelVariable+"=1"), strings.Replace(name, "%i", "*", 1)
	}
	return func() { _ = os.RemoveAll(dir) }
}

// environ is what all steps have in their environment. Weft is to use the cuBLASLt that PyTorch
// has, unless the user has named one.
func (r *runner) environ() []string {
	if path, _ := r.Python["cublaslt"].(string); path != "" && os.Getenv(libraryVariable) == "" {
		return append(r.env[:len(r.env):len(r.env)], libraryVariable+"="+path)
	}
	return r.env
}

// logged is the beginning of what cuBLASLt has said during a step.
func (r *runner) logged() (text string) {
	names, _ := filepath.Glob(r.logs)
	for _, name := range names {
		if f, err := os.Open(name); err == nil {
			head, _ := io.ReadAll(io.LimitReader(f, told/4))
			_ = f.Close()
			if text += string(head); len(text) > told/4 {
				text = text[:told/4]
			}
		}
		_ = os.Remove(name)
	}
	if text == "" {
		return ""
	}
	return "\ncuBLASLt's log:\n" + text
}
