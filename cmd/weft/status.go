package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/store"
)

// statusFlags are those of "weft status": the ones of "weft run", of which it needs those that say where the job meets.
type statusFlags struct {
	runFlags
	watch, json bool
}

// statusNeeds are the flags of "weft run" that say where a job meets, and who may look.
var statusNeeds = [...]string{"rdzv-backend", "rdzv-endpoint", "rdzv-id", "run-id", "rdzv-conf", "token-file", "master-addr", "master-port", "store-plain"}

func statusCommand(stdout io.Writer) *cobra.Command {
	f := &statusFlags{}
	cmd := &cobra.Command{
		Use:   "status --rdzv-endpoint HOST:PORT [flags]",
		Short: "Say who takes part in a job of several machines",
		Long: `Say who takes part in a job of several machines, who waits, who is redundant, and who has gone, since when and why.

It takes the flags of weft run that say where the machines meet (the others are ignored), and PET_<NAME> alike. It is no machine of the job, changes
nothing, and reads what the job's leader shows. All times are as the leaders count them, a new one going on from the last one's word;
no clocks are compared. What has just happened is seen with the leader's next word: six times in keep_alive_timeout, so every 2.5 s unless told otherwise.

The exit code is 3 where no such job meets there, 1 where that cannot be found out, and 2 where the command line is wrong.`,
		Example: `  weft status --rdzv-endpoint node0:29400 --rdzv-id job7 --token-file token
  weft status --rdzv-backend etcd --rdzv-endpoint etcd1,etcd2,etcd3 --rdzv-id job7 --watch`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.fromEnvironment(cmd); err != nil {
				return err
			}
			f.nodeRankGiven = true
			return f.status(newBoard(stdout, f.json))
		},
	}
	f.register(cmd)
	cmd.Flags().SetInterspersed(true)
	for _, name := range f.names {
		cmd.Flags().Lookup(name).Hidden = !slices.Contains(statusNeeds[:], name)
	}
	cmd.Flags().BoolVar(&f.watch, "watch", false, "keep it current until the job is over, on a terminal in place, else a line for each change")
	cmd.Flags().BoolVar(&f.json, "json", false, "as JSON, in seconds; with --watch an object for each change")
	return cmd
}

// status says how the job stands.
func (f *statusFlags) status(out *board) error {
	if f.endpoint == "" && f.backend != "static" {
		return errors.New("expected where the job meets: --rdzv-endpoint, as for weft run")
	}
	place, err := f.meeting(2)
	if err != nil {
		return err
	}
	f.runID = cmp.Or(f.runID, elastic.NoRunID)
	token, err := readToken(f.tokenFile)
	if err != nil {
		return err
	}
	token = cmp.Or(token, strings.TrimSpace(os.Getenv(elastic.TokenVariable)))
	given := token
	served, _, err := f.store(&token, 2)
	if err != nil {
		return err
	}
	c, stop := signalContext(context.Background())
	defer stop()
	w := &watching{at: place.endpoint, job: f.runID, out: out, watch: f.watch}
	if given != "" {
		w.proof = elastic.Proof(given)
	}
	look := storeFlags{url: "tcp://" + place.endpoint, tls: served.TLS != nil, tlsSaid: true}
	open := place.etcd.opener()
	if open == nil {
		open = func(c context.Context) (store.Store, error) {
			return store.Dial(c, store.ClientConfig{Addr: place.endpoint, TLS: served.TLS})
		}
	} else {
		place.etcd.config.Lease = 0 // who looks keeps nothing alive
		look.url = "etcd://" + place.endpoint
	}
	err = w.run(c, open)
	var sig signalError
	if f.watch && errors.As(err, &sig) {
		return nil // that is how one stops to watch
	}
	return look.explain(err)
}

// watching is one look at a job, or many.
type watching struct {
	at, job string
	proof   string // of the token that was given, "" if none was
	out     *board
	watch   bool

	last  frame
	heard time.Time // when last was; zero before
}

// run opens the store and shows what it has.
func (w *watching) run(c context.Context, open func(context.Context) (store.Store, error)) error {
	within, cancel := context.WithTimeout(c, answerPatience)
	st, err := open(within)
	cancel()
	if err != nil {
		return err
	}
	defer st.Close()
	c, end := context.WithCancel(c)
	var follows sync.WaitGroup
	defer follows.Wait()
	defer end()
	views, failed := make(chan rdzv.View), make(chan error, 1)
	follows.Go(func() {
		failed <- rdzv.Follow(c, elastic.RendezvousOf(w.job, st), func(v rdzv.View) {
			select {
			case views <- v:
			case <-c.Done():
			}
		})
	})
	silence := time.NewTimer(answerPatience)
	defer silence.Stop()
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case v := <-views:
			silence.Reset(patience(v))
			if over, err := w.see(v); over || err != nil {
				return err
			}
		case <-silence.C:
			if w.heard.IsZero() {
				return fmt.Errorf("%s does not answer: %w", w.at, store.ErrUnreachable)
			}
			w.last.silent = patience(w.last.View)
			if err := w.out.show(w.last); err != nil || !w.watch {
				return err
			}
		case now := <-ticks.C:
			if w.watch && !w.heard.IsZero() {
				if err := w.out.tick(w.last, now.Sub(w.heard)); err != nil {
					return err
				}
			}
		case <-c.Done():
			return context.Cause(c)
		case err := <-failed:
			return w.ended(c, st, err)
		}
	}
}

// patience is how long a leader that lives is silent at most.
func patience(v rdzv.View) time.Duration { return max(v.Config.Silence, 2*time.Second) / 2 }

// see takes a view, and says whether that is all there is to see. One look alone is shown when the leader has said another word, or
// it could be of one that is long dead.
func (w *watching) see(v rdzv.View) (over bool, err error) {
	if job := v.Config.Proof; w.proof != "" && job != "" && job != w.proof {
		return true, &exitError{codeFailed, fmt.Errorf("the job %s at %s has another token than this: set its $%s, or give its --token-file", w.job, w.at, elastic.TokenVariable)}
	}
	again, closed := !w.heard.IsZero(), v.Phase == rdzv.Closed
	w.last, w.heard = frame{View: v, at: w.at, job: w.job}, time.Now()
	if !w.watch && !again && !closed {
		return false, nil
	}
	return !w.watch || closed, w.out.show(w.last)
}

// ended says why there is nothing more to see.
func (w *watching) ended(c context.Context, st store.Store, err error) error {
	switch {
	case errors.Is(err, rdzv.ErrNone) && !w.heard.IsZero():
		return w.out.note("the job is over and has left nothing there")
	case errors.Is(err, rdzv.ErrNone):
		err = fmt.Errorf("no job %s meets at %s", w.job, w.at)
		if others, _ := elastic.Jobs(c, st); len(others) > 0 {
			err = fmt.Errorf("%w; there are %s (--rdzv-id)", err, strings.Join(others, ", "))
		}
		return &exitError{codeMissing, err}
	case errors.Is(err, rdzv.ErrCorrupt):
		return &exitError{codeFailed, fmt.Errorf("what lies at %s for the job %s is of another version of weft, or something else: %w", w.at, w.job, err)}
	}
	return err
}
