package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/internal/private"
)

// program is the command line of a worker. torchrun runs Python scripts; so does weft run where the
// name ends in .py or the flags say so, with $PYTHON_EXEC or python3, whose output is not buffered.
func (f *Flags) program(args []string) (program string, rest []string, err error) {
	if len(args) == 0 {
		return "", nil, errors.New("expected the program that each worker runs, as in: weft run --nproc-per-node 2 bin/digits")
	}
	python := os.Getenv("PYTHON_EXEC")
	if python == "" {
		python = "python3"
	} else if f.module || f.runPath || strings.HasSuffix(args[0], ".py") && !f.noPython {
		f.from("program", "PYTHON_EXEC")
	}
	switch {
	case f.module && f.noPython:
		return "", nil, errors.New("don't use both the '--no-python' flag and the '--module' flag at the same time")
	case f.module:
		return python, append([]string{"-u", "-m"}, args...), nil
	case f.runPath || strings.HasSuffix(args[0], ".py") && !f.noPython:
		if info, err := os.Stat(args[0]); err != nil || info.IsDir() {
			return "", nil, fmt.Errorf("script %q does not exist; give its path", args[0])
		}
		return python, append([]string{"-u"}, args...), nil
	}
	return args[0], args[1:], source(args[0])
}

// usualPolicy is what a failed worker costs where nobody says. PyTorch's process groups do not go
// on without one of theirs.
func usualPolicy(program string) string {
	if isPython(program) {
		return "group"
	}
	return "worker"
}

func isPython(program string) bool { return strings.HasPrefix(filepath.Base(program), "python") }

// parseNproc reads how many workers there are to be; root is the file system, in which the GPUs are
// found.
func parseNproc(s string, root fs.FS) (int, error) {
	switch s {
	case "auto":
		if n := gpus(root, os.LookupEnv); n > 0 {
			return n, nil
		}
		return runtime.NumCPU(), nil
	case "cpu":
		return runtime.NumCPU(), nil
	case "gpu", "cuda":
		if n := gpus(root, os.LookupEnv); n > 0 {
			return n, nil
		}
		return 0, fmt.Errorf("--nproc-per-node %s: this machine shows no GPU of NVIDIA's (CUDA_VISIBLE_DEVICES, /dev/nvidia*); give a number, or cpu", s)
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("--nproc-per-node: expected a number from 1 up, auto, cpu or gpu; got %q", s)
	}
	return n, nil
}

// gpus is how many GPUs of NVIDIA's a program would find, as far as its environment and the
// driver's files tell: CUDA_VISIBLE_DEVICES names them, up to the first that is none.
func gpus(root fs.FS, lookup func(string) (string, bool)) int {
	devices, _ := fs.Glob(root, "dev/nvidia[0-9]*") // what a container was given
	if len(devices) == 0 {
		devices, _ = fs.Glob(root, "proc/driver/nvidia/gpus/*") // device files are made when they are first used
	}
	visible, set := lookup("CUDA_VISIBLE_DEVICES")
	if !set {
		return len(devices)
	}
	n := 0
	for name := range strings.SplitSeq(visible, ",") {
		name = strings.TrimSpace(name)
		if index, err := strconv.Atoi(name); err == nil && (index < 0 || index >= len(devices)) {
			break
		} else if err != nil && !strings.HasPrefix(name, "GPU-") && !strings.HasPrefix(name, "MIG-") {
			break
		}
		n++
	}
	if len(devices) == 0 {
		return 0
	}
	return n
}

// logs is what the flags say of the workers' output.
func (f *Flags) logs() (agent.Logs, error) {
	var errs []error
	selection := func(name, text string) agent.Selection {
		s, err := agent.ParseSelection(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", name, err))
		}
		return s
	}
	l := agent.Logs{Dir: f.logDir, Redirect: selection("redirects", f.redirects), Tee: selection("tee", f.tee)}
	for rank := range strings.SplitSeq(f.filter, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(rank))
		switch {
		case f.filter == "":
		case err != nil:
			errs = append(errs, fmt.Errorf("--local-ranks-filter: expected local ranks as in 0,2; got %q", rank))
		default:
			l.Show = append(l.Show, n)
		}
	}
	switch {
	case f.logDir != "" && f.redirects == "" && f.tee == "":
		l.Tee.All = agent.Stdout | agent.Stderr
	case f.logDir == "" && f.redirects+f.tee != "":
		home, _ := os.UserHomeDir() // "" where there is none
		dir, unusable, err := usualLogs(os.Getenv("XDG_STATE_HOME"), home)
		if err != nil {
			errs = append(errs, fmt.Errorf("--log-dir: expected a folder, as there is none for logs: %w", err))
		}
		if l.Dir = dir; unusable != nil {
			f.Notes = append(f.Notes, "log files go to a new folder for temporary files, without --log-dir: "+
				unusable.Error())
		}
	}
	return l, errors.Join(errs...)
}

// usualLogs is where logs go for which nobody names a folder: among the user's own state, as the
// XDG Base Directory Specification has it. Who has no place for that, as the user of many a
// container, gets a new folder among the temporary files. unusable is why it is there though the
// user has a place.
func usualLogs(state, home string) (name string, unusable, err error) {
	if !filepath.IsAbs(state) {
		if state, unusable = "", own(home); unusable == nil {
			state = filepath.Join(home, ".local", "state")
		}
	}
	if state != "" {
		dir, err := private.Folder(filepath.Join(state, "weft", "logs"))
		if err == nil {
			return dir.Name(), nil, dir.Close()
		}
		unusable = err
	}
	if errors.Is(unusable, fs.ErrNotExist) { // there is no home
		unusable = nil
	}
	dir, err := private.New(os.TempDir(), "weft-logs-")
	if err != nil {
		return "", nil, err
	}
	return dir.Name(), unusable, dir.Close()
}

// own says why a home is not this user's, fs.ErrNotExist if there is none: behind sudo, $HOME may
// be another's.
func own(home string) error {
	if !filepath.IsAbs(home) {
		return fs.ErrNotExist
	}
	if info, err := os.Stat(home); err != nil || !info.IsDir() {
		return fs.ErrNotExist
	}
	dir, err := private.Folder(home)
	if err != nil {
		return err
	}
	return dir.Close()
}
