package storecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/store"
)

// maxValue is the longest value that a store takes (store.Limits).
const maxValue = 8 << 20

// operation is one thing that a person does with a store.
type operation struct {
	use, short, long string
	least, most      int  // of arguments; most 0: any number
	waits            bool // for keys, so that --timeout is about them
	do               func(*session, context.Context, []string) error
}

// session is one operation under way.
type session struct {
	store.Store
	flags *storeFlags
	in    io.Reader
	out   printer
	err   io.Writer
	count int // of watch
}

// now says not to wait.
func (s *session) now() bool { return s.flags.timeout == 0 }

func storeOperations() []operation {
	return []operation{
		{"get KEY…", "Wait for keys and print their values", "One value is printed as it is. On a terminal, and for several keys, text that cannot be seen is\nquoted as in Go. After 2 s it says on standard error what it waits for.", 1, 0, true, (*session).get},
		{"set KEY [VALUE]", "Store a value", "Without VALUE it is what stands on standard input, to the last byte.", 1, 2, false, (*session).set},
		{"add KEY [DELTA]", "Add to a number, and print the sum", "DELTA is 1 by default. Write a negative one behind --, as in: weft store add KEY -- -1", 1, 2, false, (*session).addKey},
		{"wait KEY…", "Wait until all keys are there", "", 1, 0, true, (*session).waitKeys},
		{"watch KEY", "Print every change of a key, until interrupted", "Each line is created, updated or deleted, then a tab and the value. Text that cannot be seen is\nquoted as in Go. Changes that were missed, because this was slow or the connection was lost, are\nreported on standard error.", 1, 1, false, (*session).watch},
		{"keys", "Print all keys, sorted", "", 0, -1, false, (*session).keys},
		{"delete KEY…", "Remove keys", "", 1, 0, false, (*session).delete},
		{"push KEY [VALUE]", "Add a value to the end of a queue", "Without VALUE it is what stands on standard input, to the last byte.", 1, 2, false, (*session).push},
		{"pop KEY", "Wait for a value in a queue, take it out and print it", "", 1, 1, true, (*session).pop},
		{"barrier KEY WORLD", "Wait until WORLD have called this", "", 2, 2, true, (*session).barrier},
	}
}

func (o operation) command(stdout, stderr io.Writer) *cobra.Command {
	f, s := &storeFlags{}, &session{}
	cmd := &cobra.Command{
		Use: o.use, Short: o.short, Long: strings.TrimSpace(o.short + ".\n\n" + o.long),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < o.least || o.most != 0 && len(args) > max(o.most, 0) {
				return fmt.Errorf("expected: weft store %s; got %d arguments", o.use, len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.tlsSaid = cmd.Flags().Changed("tls")
			if err := f.check(); err != nil {
				return err
			}
			s.flags, s.in, s.out, s.err = f, cmd.InOrStdin(), newPrinter(stdout), stderr
			c, stop := cli.UntilSignal(cmd.Context())
			defer stop()
			opened, end, err := f.open(c)
			if err != nil {
				return err
			}
			defer end()
			s.Store = opened
			err = f.explain(o.do(s, c, args))
			var exit *cli.ExitError
			missing := errors.As(err, &exit) && exit.Code == cli.CodeMissing
			if missing || err == nil && cmd.Name() == "keys" {
				if hint := f.asGuest(c); hint != "" {
					fmt.Fprintln(stderr, "weft: "+hint)
				}
			}
			return err
		},
	}
	f.register(cmd)
	if o.waits {
		cmd.Flags().DurationVar(&f.timeout, "timeout", store.DefaultTimeout, "how long to wait for keys, once the store is reached; 0s: not at all")
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if strings.Contains(err.Error(), "shorthand flag") {
			err = fmt.Errorf("%w; what begins with - stands behind --, as in: weft store add KEY -- -1", err)
		}
		return err
	})
	if strings.HasPrefix(o.use, "watch") {
		cmd.Flags().IntVarP(&s.count, "count", "n", 0, "end after so many changes; 0: never")
	}
	return cmd
}

// errMissing says that a key is not there, to who does not want to wait.
func errMissing(key string) error {
	return cli.Exit(cli.CodeMissing, fmt.Errorf("there is no key %s", quoted(key)))
}

// present refuses keys that are not there.
func (s *session) present(c context.Context, keys []string) error {
	for _, key := range keys {
		if ok, err := s.Check(c, key); err != nil {
			return err
		} else if !ok {
			return errMissing(key)
		}
	}
	return nil
}

func (s *session) get(c context.Context, keys []string) error {
	return s.waiting(c, keys, func(c context.Context) error {
		if s.now() {
			if err := s.present(c, keys); err != nil {
				return err
			}
		}
		if len(keys) == 1 {
			value, err := s.Get(c, keys[0])
			if err != nil {
				return err
			}
			return s.out.value(value)
		}
		values, err := s.MultiGet(c, keys...)
		for i := range values {
			err = errors.Join(err, s.out.line(keys[i], string(values[i])))
		}
		return err
	})
}

func (s *session) waitKeys(c context.Context, keys []string) error {
	return s.waiting(c, keys, func(c context.Context) error {
		if s.now() {
			return s.present(c, keys)
		}
		return s.Wait(c, keys...)
	})
}

func (s *session) set(c context.Context, args []string) error {
	value, err := s.value(args)
	if err != nil {
		return err
	}
	return s.within(c, func(c context.Context) error { return s.Set(c, args[0], value) })
}

func (s *session) push(c context.Context, args []string) error {
	value, err := s.value(args)
	if err != nil {
		return err
	}
	return s.within(c, func(c context.Context) error { return s.Push(c, args[0], value) })
}

// value is the second argument, or what stands on standard input.
func (s *session) value(args []string) ([]byte, error) {
	if len(args) > 1 {
		return []byte(args[1]), nil
	}
	if f, ok := s.in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return nil, cli.Exit(cli.CodeUsage, errors.New("expected the value behind the key, or on standard input"))
	}
	value, err := io.ReadAll(io.LimitReader(s.in, maxValue+1))
	if err == nil && len(value) > maxValue {
		err = fmt.Errorf("%w: standard input has more than the %d bytes that a value may have", store.ErrTooLarge, maxValue)
	}
	return value, err
}

func (s *session) addKey(c context.Context, args []string) error {
	delta := int64(1)
	if len(args) > 1 {
		var err error
		if delta, err = strconv.ParseInt(args[1], 10, 64); err != nil {
			return cli.Exit(cli.CodeUsage, fmt.Errorf("expected a whole number to add, got %q", args[1]))
		}
	}
	return s.within(c, func(c context.Context) error {
		sum, err := s.Add(c, args[0], delta)
		if err != nil {
			return err
		}
		return s.out.line(strconv.FormatInt(sum, 10))
	})
}

func (s *session) keys(c context.Context, _ []string) error {
	return s.within(c, func(c context.Context) error {
		keys, err := s.ListKeys(c)
		for _, key := range keys {
			err = errors.Join(err, s.out.line(key))
		}
		return err
	})
}

func (s *session) delete(c context.Context, keys []string) error {
	return s.within(c, func(c context.Context) error {
		var missing error
		for _, key := range keys {
			there, err := s.Delete(c, key)
			if err != nil {
				return err
			}
			if !there && missing == nil {
				missing = errMissing(key)
			}
		}
		return missing
	})
}

func (s *session) pop(c context.Context, args []string) error {
	return s.waiting(c, args[:1], func(c context.Context) error {
		value, ok, err := []byte(nil), true, error(nil)
		if s.now() {
			value, ok, err = s.TryPop(c, args[0])
		} else {
			value, err = s.Pop(c, args[0])
		}
		switch {
		case err != nil:
			return err
		case !ok:
			return cli.Exit(cli.CodeMissing, fmt.Errorf("the queue %s is empty", quoted(args[0])))
		}
		return s.out.value(value)
	})
}

func (s *session) barrier(c context.Context, args []string) error {
	world, err := strconv.Atoi(args[1])
	if err != nil || world < 1 {
		return cli.Exit(cli.CodeUsage, fmt.Errorf("expected how many come to the barrier, from 1 up, got %q", args[1]))
	}
	return s.waiting(c, args[:1], func(c context.Context) error { return s.Barrier(c, args[0], world) })
}

// watch ends well when it is interrupted.
func (s *session) watch(c context.Context, args []string) error {
	w, err := s.Watch(c, args[0])
	if err != nil {
		return err
	}
	defer w.Stop()
	for n := 0; s.count == 0 || n < s.count; n++ {
		ch, ok := <-w.C
		if !ok {
			return ended(w.Err())
		}
		if err := s.printChange(ch); err != nil {
			return err
		}
	}
	return nil
}

// printChange writes one change.
func (s *session) printChange(ch store.Change) error {
	switch {
	case ch.Dropped < 0:
		fmt.Fprintf(s.err, "weft: changes of %s may have been missed\n", quoted(ch.Key))
	case ch.Dropped > 0:
		fmt.Fprintf(s.err, "weft: %d changes of %s were missed\n", ch.Dropped, quoted(ch.Key))
	}
	if ch.Kind == store.Deleted {
		return s.out.line(ch.Kind.String())
	}
	return s.out.line(ch.Kind.String(), string(ch.New))
}
