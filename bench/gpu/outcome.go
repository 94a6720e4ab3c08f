package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// result is what the check writes.
type result struct {
	Date    string         `json:"date"`
	Commit  string         `json:"commit"`
	Command string         `json:"command"`
	State   string         `json:"state"` // running, complete, or what ended it
	Notes   []string       `json:"notes,omitempty"`
	GPU     *gpuReport     `json:"gpu"`              // nil until the step device has told
	NoGPU   string         `json:"no_gpu,omitempty"` // why there is none
	Python  map[string]any `json:"python,omitempty"` // versions, as the step python tells
	Green   bool           `json:"green"`
	Seconds float64        `json:"seconds"`
	Steps   []outcome      `json:"steps"` // all that are planned, in order
}

// The states of a check that nothing has ended.
const (
	running  = "running"
	complete = "complete"
)

// outcome is what became of a step.
type outcome struct {
	Name    string           `json:"name"`
	Verdict string           `json:"verdict"`
	Seconds float64          `json:"seconds"`
	Why     string           `json:"why,omitempty"`
	Output  string           `json:"output,omitempty"` // its beginning and its end
	Lines   []map[string]any `json:"lines,omitempty"`
	Must    bool             `json:"must,omitempty"`
	Aside   bool             `json:"aside,omitempty"`
}

// The verdicts, beside running. What is left out had no time, or what it needs is not here; what is
// interrupted was under way when the check was ended.
const (
	waiting     = "not run"
	ok          = "ok"
	failed      = "failed"
	late        = "late"
	leftOut     = "left out"
	interrupted = "interrupted"
)

// green says that all was run, that every module loads, that what must be shown was, and that no
// step of Weft's went wrong.
func green(r result) bool {
	for _, s := range r.Steps {
		if s.Verdict != ok && (s.Must || s.Verdict != leftOut && !s.Aside) {
			return false
		}
	}
	return r.State == complete && r.GPU != nil && len(r.GPU.LoadErrors) == 0
}

// learn takes from the lines of the steps what is told of the machine.
func (r *result) learn() {
	r.Notes, r.GPU, r.NoGPU, r.Python = nil, nil, "", nil
	for _, s := range r.Steps {
		for _, l := range s.Lines {
			switch l["case"] {
			case "note":
				r.Notes = append(r.Notes, fmt.Sprint(l["text"]))
			case "gpu":
				if missing(l) {
					r.NoGPU = fmt.Sprint(l["error"])
				}
				if g := reportIn(l); g != nil {
					r.GPU = g
				}
			case "python":
				r.Python = l
			}
		}
	}
	if r.GPU != nil {
		r.Notes = append(r.Notes, r.GPU.notes()...)
	}
}

// write writes both files: each is whole at any time, as it was before or as it is now. They are
// looked at as they are written: what one of them cannot be is no reason for the other not to be
// written.
func (r result) write(dir string) error {
	raw, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return errors.Join(replace(filepath.Join(dir, "result.json"), append(raw, '\n')), replace(filepath.Join(dir, "result.md"), []byte(r.markdown())))
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
