package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Result is what the check writes.
type Result struct {
	Date    string         `json:"date"`
	Commit  string         `json:"commit"`
	Command string         `json:"command"`
	State   string         `json:"state"` // running, complete, or what ended it
	Notes   []string       `json:"notes,omitempty"`
	GPU     *GPU           `json:"gpu"`              // nil until the step device has told
	NoGPU   string         `json:"no_gpu,omitempty"` // why there is none
	Python  map[string]any `json:"python,omitempty"` // versions, as the step python tells
	Green   bool           `json:"green"`
	Seconds float64        `json:"seconds"`
	Steps   []Outcome      `json:"steps"` // all that are planned, in order
}

// The states of a check that nothing has ended.
const (
	Running  = "running"
	Complete = "complete"
)

// Outcome is what became of a step.
type Outcome struct {
	Name    string           `json:"name"`
	Verdict string           `json:"verdict"`
	Seconds float64          `json:"seconds"`
	Why     string           `json:"why,omitempty"`
	Output  string           `json:"output,omitempty"` // its beginning and its end
	Lines   []map[string]any `json:"lines,omitempty"`
	Must    bool             `json:"must,omitempty"`
	Aside   bool             `json:"aside,omitempty"`

	Experiment bool `json:"experiment,omitempty"` // of what programs have to ask for: no verdict on the rest
}

// The verdicts, beside running. What is left out had no time, or what it needs is not here; what is
// interrupted was under way when the check was ended.
const (
	Waiting     = "not run"
	OK          = "ok"
	Failed      = "failed"
	Late        = "late"
	LeftOut     = "left out"
	Interrupted = "interrupted"
)

// Green says that all was run, that every module loads, that what must be shown was, and that no
// step of Weft's went wrong but an experiment.
func Green(r Result) bool {
	for _, s := range r.Steps {
		if s.Verdict != OK && (s.Must || s.Verdict != LeftOut && !s.Aside && !s.Experiment) {
			return false
		}
	}
	return r.State == Complete && r.GPU != nil && len(r.GPU.LoadErrors) == 0
}

// Learn takes from the lines of the steps what is told of the machine.
func (r *Result) Learn() {
	r.Notes, r.GPU, r.NoGPU, r.Python = nil, nil, "", nil
	for _, s := range r.Steps {
		for _, l := range s.Lines {
			switch l["case"] {
			case "note":
				r.Notes = append(r.Notes, fmt.Sprint(l["text"]))
			case "gpu":
				if Missing(l) {
					r.NoGPU = fmt.Sprint(l["error"])
				}
				if g := ReportIn(l); g != nil {
					r.GPU = g
				}
			case "python":
				r.Python = l
			}
		}
	}
	if r.GPU != nil {
		r.Notes = append(r.Notes, r.GPU.Notes()...)
	}
}

// Write writes both files: each is whole at any time, as it was before or as it is now. They are
// looked at as they are written: what one of them cannot be is no reason for the other not to be
// written.
func (r Result) Write(dir string) error {
	raw, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return errors.Join(replace(filepath.Join(dir, "result.json"), append(raw, '\n')), replace(filepath.Join(dir, "result.md"), []byte(r.Markdown())))
}

// replace puts a file in the place of another.
func replace(path string, text []byte) error {
	part := path + ".part"
	err := os.WriteFile(part, text, 0o600)
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}

// What steps are left out for; why there is none is told once, at the head of the results.
const (
	NoGPU   = "there is no GPU"
	NoTorch = "there is no PyTorch"
)

// Missing says that a line tells that there is no GPU.
func Missing(l map[string]any) bool { return l["case"] == "gpu" && l["none"] == true }

// AllDone is the last line of steps that are this program, where they end well.
const AllDone = "done"

// Indented is a text as a block of code in Markdown.
func Indented(s string) string { return "\t" + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n\t") }
