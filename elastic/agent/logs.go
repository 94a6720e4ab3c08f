package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-project/weft/elastic/internal/errorfile"
	"github.com/weft-project/weft/elastic/internal/output"
	"github.com/weft-project/weft/internal/private"
)

// Logs says what of the workers' output is kept in files, and what is shown. The zero value keeps
// nothing and shows all.
type Logs struct {
	// Dir is the folder in which each Run makes one of its own, as torchrun does, with the files of
	// each start of a worker. It must be this user's or root's, and nobody else may write to it,
	// unless each removes only his own there, as in /tmp. Who else may read it finds nothing in it
	// that he may read.
	//
	//	DIR/RUNID_RANDOM/round_ROUND/attempt_RESTARTS/LOCALRANK/{stdout.log,stderr.log,error.json}
	//
	// ROUND is the one in which the worker was started, which may live through later ones, and
	// RESTARTS how many failed workers the job had started again by then. Empty means no files.
	Dir string
	// Redirect is what goes to a file and is not shown, Tee what goes to a file and is shown.
	Redirect, Tee Selection
	// Show are the local ranks whose output is shown; empty means all.
	Show []int
}

// kept is which streams of a worker go to files.
func (l Logs) kept(localRank int) Streams { return l.Redirect.of(localRank) | l.Tee.of(localRank) }

// shown is which streams of a worker are shown.
func (l Logs) shown(localRank int) Streams {
	if len(l.Show) > 0 && !slices.Contains(l.Show, localRank) {
		return 0
	}
	return (Stdout|Stderr)&^l.Redirect.of(localRank) | l.Tee.of(localRank)
}

// keepsShown says that files have all that is shown of a stream.
func (l Logs) keepsShown(stream Streams, workers int) bool {
	for i := range workers {
		if l.shown(i)&^l.kept(i)&stream != 0 {
			return false
		}
	}
	return true
}

func (l Logs) validate(workers int) error {
	errs := []error{l.Redirect.check("redirects", workers), l.Tee.check("tee", workers)}
	for _, rank := range l.Show {
		errs = append(errs, checkRank("local ranks to show", rank, workers))
	}
	if l.Dir == "" && (l.Redirect.any() || l.Tee.any()) {
		errs = append(errs, errors.New("redirects and tee: what is to be kept needs a log folder, got none"))
	}
	return errors.Join(errs...)
}

// folder makes the folder of one Run, nil where no files are asked for.
func (l Logs) folder(runID string) (*os.Root, error) {
	if l.Dir == "" {
		return nil, nil
	}
	dir, err := private.New(l.Dir, fileName(runID)+"_")
	if err != nil {
		return nil, fmt.Errorf("%w: log folder: %w", ErrInvalidSpec, err)
	}
	return dir, nil
}

// fileName is a name as part of a file's.
func fileName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), 64)]
}

// files are where the output of one start of a worker is kept; nil is nowhere.
type files struct {
	stdout, stderr *output.File
	errors         errorfile.File
}

// openFiles makes the files of a worker that is about to start. Complain is told once of each that
// cannot be written any more.
func (l Logs) openFiles(root *os.Root, round, restarts, localRank int, complain func(error)) (f files, err error) {
	if root == nil {
		f.errors = errorfile.Unnamed()
		return f, nil
	}
	folder := filepath.Join("round_"+strconv.Itoa(round), "attempt_"+strconv.Itoa(restarts), strconv.Itoa(localRank))
	err = root.MkdirAll(folder, 0o700)
	for name, at := range map[string]**output.File{"stdout.log": &f.stdout, "stderr.log": &f.stderr} {
		stream := map[string]Streams{"stdout.log": Stdout, "stderr.log": Stderr}[name]
		if err != nil || l.kept(localRank)&stream == 0 {
			continue
		}
		var file *os.File
		if file, err = root.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
			*at = output.NewFile(file, complain)
		}
	}
	if err != nil {
		f.closeAll()
		return files{}, fmt.Errorf("its log files: %w", err)
	}
	f.errors = errorfile.File{Path: filepath.Join(root.Name(), folder, "error.json")}
	return f, nil
}

func (f files) closeAll() {
	f.stdout.Close()
	f.stderr.Close()
	f.errors.Close()
}
