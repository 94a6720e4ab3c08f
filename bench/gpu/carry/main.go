package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "carry:", err)
		os.Exit(1)
	}
}

const mib = 1 << 20

// file is a file and its bytes.
type file struct {
	path  string
	bytes int64
}

// run is the program.
func run(args []string, out io.Writer) error {
	f := flag.NewFlagSet("carry", flag.ContinueOnError)
	limit := f.Float64("limit", 55, "the most MiB that bundle and tree may have together")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 || *limit <= 0 {
		return fmt.Errorf("arguments %q; expected [-limit MIB, more than 0] BUNDLE FOLDER", args)
	}
	bundle, err := os.Stat(f.Arg(0))
	if err != nil {
		return err
	}
	unpacked, err := below(f.Arg(1))
	if err != nil {
		return err
	}
	tree, err := tracked(".")
	if err != nil {
		return err
	}
	list(out, f.Arg(1), unpacked)
	list(out, "the tree", tree)
	whole := float64(bundle.Size()+total(tree)) / mib
	fmt.Fprintf(out, "to carry: %.1f MiB of at most %g: bundle %.1f, tree %.1f\n", whole, *limit, float64(bundle.Size())/mib, float64(total(tree))/mib)
	if whole > *limit {
		return fmt.Errorf("bundle and tree have %.1f MiB together; at most %g can be carried: remove what is large above, or have git ignore it", whole, *limit)
	}
	return nil
}

// shown is how many files are listed.
const shown = 8

// list prints the largest files.
func list(out io.Writer, name string, files []file) {
	fmt.Fprintf(out, "%s: %.1f MiB in %d files\n", name, float64(total(files))/mib, len(files))
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), strings.Compare(a.path, b.path)) })
	for _, f := range files[:min(shown, len(files))] {
		fmt.Fprintf(out, "%8.2f MiB  %s\n", float64(f.bytes)/mib, f.path)
	}
}

func total(files []file) (sum int64) {
	for _, f := range files {
		sum += f.bytes
	}
	return sum
}

// below is the files of a folder.
func below(dir string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		i, err := d.Info()
		if err == nil {
			files = append(files, file{path, i.Size()})
		}
		return err
	})
	return files, err
}

// tracked is the files of a repository's folder that git knows, and those it neither knows nor
// ignores.
func tracked(dir string) (files []file, err error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = dir
	said, err := cmd.Output()
	if err != nil {
		text := ""
		if e := new(exec.ExitError); errors.As(err, &e) {
			text = ": " + strings.TrimSpace(string(e.Stderr))
		}
		return nil, fmt.Errorf("git ls-files: %w%s", err, text)
	}
	paths := slices.Compact(slices.Sorted(strings.SplitSeq(strings.TrimSuffix(string(said), "\x00"), "\x00")))
	for _, path := range paths {
		switch i, err := os.Lstat(filepath.Join(dir, path)); {
		case err == nil:
			files = append(files, file{path, i.Size()})
		case !errors.Is(err, fs.ErrNotExist): // it was deleted, and git has not been told
			return nil, err
		}
	}
	return files, nil
}
