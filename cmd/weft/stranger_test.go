package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
)

// outcome is what became of a command line.
type outcome struct {
	Code   int
	Stderr string
}

// strangers is what a process of another user does to our files.
var strangers = map[string]proctest.Command{
	"count": proctest.Do(countKeys),
	"weft": proctest.Do(func(_ context.Context, args []string) (said outcome, _ error) {
		var out, err strings.Builder
		said.Code = here(args, &out, &err)
		said.Stderr = err.String()
		return said, nil
	}),
	"store": proctest.Do(func(c context.Context, addr string) (struct{}, error) {
		s, err := store.Serve(store.ServerConfig{Addr: addr})
		if err == nil {
			context.AfterFunc(c, func() { _ = s.Close() })
		}
		return struct{}{}, err
	}),
	"mkdir": proctest.Do(func(_ context.Context, dir string) (struct{}, error) {
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			err = os.Chmod(dir, 0o777) // whatever the umask
		}
		return struct{}{}, err
	}),
	// The folders of jobs in a folder of the stranger's give way to his own, in which the second
	// attempt's output is a link.
	"plant": proctest.Do(func(_ context.Context, at struct{ Folder, Link string }) (int, error) {
		jobs, err := os.ReadDir(at.Folder)
		for _, job := range jobs {
			dir := filepath.Join(at.Folder, job.Name())
			err = os.Rename(dir, dir+".aside")
			if err == nil {
				err = os.MkdirAll(filepath.Join(dir, "round_0/attempt_1/0"), 0o777)
			}
			if err == nil {
				err = os.Symlink(at.Link, filepath.Join(dir, "round_0/attempt_1/0/stdout.log"))
			}
			if err != nil {
				break
			}
		}
		return len(jobs), err
	}),
}
