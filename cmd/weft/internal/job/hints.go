package job

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
)

// Unknown has the error of a flag that weft run does not have say which one may be meant, or where
// flags of the program stand.
func (f *Flags) Unknown(err error) error {
	name, is := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !is {
		short, in, _ := strings.Cut(err.Error(), " in -")
		if name = in; !strings.HasPrefix(short, "unknown shorthand flag: ") {
			return err
		}
	}
	name, _, _ = strings.Cut(name, "=")
	hint := "flags of the program stand behind its name"
	if near := f.nearest(dashed(name)); near != "" {
		hint = "did you mean --" + near + "?"
	}
	return cli.Reword(err.Error()+"; "+hint, err)
}

// nearest gives the flag that a wrong name may mean, or "": the only one that begins with it, or
// the one that the fewest letters make of it, up to a third of them.
func (f *Flags) nearest(name string) (near string) {
	var longer []string
	best := len(name)/3 + 1
	for _, known := range f.Names {
		if strings.HasPrefix(known, name) {
			longer = append(longer, known)
		}
		if d := distance(name, known); d < best {
			near, best = known, d
		}
	}
	if near == "" && len(longer) == 1 && len(name) > 1 {
		return longer[0]
	}
	return near
}

// distance is how many letters make one word of another: put in, left out or replaced.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // of what was read of a, to each beginning of b
	for k := range row {
		row[k] = k
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for k := range len(b) {
			replaced := corner
			if a[i] != b[k] {
				replaced++
			}
			corner = row[k+1]
			row[k+1] = min(replaced, row[k]+1, corner+1)
		}
	}
	return row[len(b)]
}

func dashed(name string) string { return strings.ReplaceAll(name, "_", "-") }

// Misplaced says which of the arguments of a program that has failed may be flags of weft run, ""
// if none is. said are its last lines: a Go program that panics exits as one that refuses a flag.
func (f *Flags) Misplaced(args, said []string) string {
	if slices.ContainsFunc(said, panicked.MatchString) {
		return ""
	}
	for _, arg := range args {
		name, is := strings.CutPrefix(arg, "--")
		if arg == "--" {
			break
		}
		name, _, _ = strings.Cut(name, "=")
		if name = dashed(name); is && slices.Contains(f.Names, name) {
			return fmt.Sprintf("the program got --%s; if that was meant for weft run, it stands before the program's name", name)
		}
	}
	return ""
}

// panicked matches lines of Go's report of a panic, of which the first ones may be cut off.
var panicked = regexp.MustCompile(`^(panic: |fatal error: |goroutine \d+ \[)|\.go:\d+ \+0x`)

// source refuses a program that is source text of Go, and says what makes a program of it.
func source(program string) error {
	if _, err := exec.LookPath(program); err == nil && filepath.Base(program) == program {
		return nil // it is in PATH, whatever lies here
	}
	info, err := os.Stat(program)
	if err != nil {
		return nil //nolint:nilerr // what is not there is refused elsewhere
	}
	what, folder := "a folder of source text", program
	if files, _ := filepath.Glob(filepath.Join(program, "*.go")); !info.IsDir() || len(files) == 0 {
		if !strings.HasSuffix(program, ".go") || !info.Mode().IsRegular() || info.Mode()&0o111 != 0 {
			return nil
		}
		what, folder = "source text", filepath.Dir(program)
	}
	if folder = filepath.Clean(folder); !filepath.IsAbs(folder) && !strings.HasPrefix(folder, ".") {
		folder = "./" + folder
	}
	return fmt.Errorf("program %q is %s; build it first, as in: go build -o bin/ %s", program, what, folder)
}
