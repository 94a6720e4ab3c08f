package status

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/job"
	"github.com/weft-project/weft/cmd/weft/internal/reach"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/store"
)

// statusFlags are those of "weft status": the ones of "weft run", of which it needs those that say
// where the job meets.
type statusFlags struct {
	job.Flags
	watch, json, groups bool
}

// statusNeeds are the flags of "weft run" that say where a job meets, and who may look; with what
// they are here where that is another thing.
var statusNeeds = map[string]string{
	"rdzv-backend": "", "run-id": "", "rdzv-conf": "",
	"rdzv-endpoint": "host[:port] at which the job meets, as weft run has it (port 29400 where none is given); for etcd [USER@]HOST[:PORT],…[/PREFIX]",
	"rdzv-id":       "name of the job (default " + agent.NoRunID + ", as that of a job of several machines that was given none)",
	"token-file":    secrets.TokenUsage,
	"ca":            "", "cert": "", "key": "",
	"master-addr": "of a job that was started with it and without --rdzv-endpoint: the job's own",
	"master-port": "with --master-addr: the job's own (default 29500)",
	"store-plain": "the job's own: always, where its machines have no secret and meet beyond loopback",
}

// Command is "weft status", which prints to stdout.
func Command(stdout io.Writer) *cobra.Command {
	f := &statusFlags{}
	cmd := &cobra.Command{
		Use:   "status --rdzv-endpoint HOST:PORT [flags]",
		Short: "Say who takes part in a job of several machines",
		Long: `Say who takes part in a job of several machines, who waits, who is redundant, and who has gone,
since when and why.

It takes the flags of weft run that say where the machines meet, and their PET_<NAME>. It ignores
the others. It takes no part in the job and changes nothing: it reads what the job's leader shows.
All times are counted by the leaders, and a new leader goes on from the last word of the one before.
No clocks are compared. A change is seen with the leader's next word, which comes six times in
keep_alive_timeout: every 2.5 s by default. One look waits for that word, to know that the leader
lives. It takes about two seconds.

HEARD says when a node was last heard of. If its word is overdue, it says how long ago that was, and
when the node is lost.

The exit code is 3 if no job of that id meets there. It is 2 if the command line is wrong, and 1 if
the answer cannot be found: nothing listens there, or a store with TLS belongs to another job. With
--watch it is 1, too, when the store does not answer for four times keep_alive_timeout, and for a
minute at least. The job's machines wait as long.`,
		Example: `  weft status --rdzv-endpoint node0:29400 --rdzv-id job7 --token-file token
  weft status --rdzv-backend etcd --rdzv-endpoint etcd1,etcd2,etcd3 --rdzv-id job7 --watch`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.FromEnvironment(cmd); err != nil {
				return f.Blame(err)
			}
			f.NodeRankGiven = true
			return f.Blame(f.status(newBoard(stdout, f.json)))
		},
	}
	f.Register(cmd)
	cmd.Flags().SetInterspersed(true)
	for _, name := range f.Names {
		flag := cmd.Flags().Lookup(name)
		usage, needed := statusNeeds[name]
		flag.Hidden, flag.Usage = !needed, cmp.Or(usage, flag.Usage)
	}
	cmd.Flags().BoolVar(&f.watch, "watch", false, "keep it current until the job is over, or its store is gone; on a terminal in place, else a line for each change")
	cmd.Flags().BoolVar(&f.groups, "groups", false, "also ask the workers what their groups wait in, where and for whom")
	cmd.Flags().BoolVar(&f.json, "json", false, "as JSON, in seconds; with --watch an object for each change")
	return cmd
}

// status says how the job stands.
func (f *statusFlags) status(out *board) error {
	place, err := f.Place()
	if err != nil {
		return err
	}
	c, stop := cli.UntilSignal(context.Background())
	defer stop()
	w := &watching{at: place.Shown, job: place.Job, proof: place.Proof, out: out, watch: f.watch}
	if err := f.oneLook(); err != nil {
		return err
	}
	err = w.show(c, place.Open)
	if err == nil && f.groups {
		err = f.showGroups(c, out.w, place.Job, w.last.store)
	}
	var sig cli.Signal
	if f.watch && errors.As(err, &sig) {
		return nil // that is how one stops to watch
	}
	return w.explain(err, place.TLS != nil, place.InEtcd)
}

// watching is one look at a job, or many.
type watching struct {
	at, job string
	proof   string // of the token that was given, "" if none was
	out     *board
	watch   bool

	last  frame
	heard time.Time // when last was; zero before
	store string    // URL of the workers' store in the round of that number, "" if it was not there
	round int
}

// show opens the store and shows what it has.
func (w *watching) show(c context.Context, open func(context.Context) (store.Store, error)) error {
	within, cancel := context.WithTimeout(c, cli.AnswerPatience)
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
		failed <- rdzv.Follow(c, agent.RendezvousOf(w.job, st), func(v rdzv.View) {
			select {
			case views <- v:
			case <-c.Done():
			}
		})
	})
	silence := time.NewTimer(cli.AnswerPatience)
	asked := make(chan error, 1) // whether the store answers, while the leader says nothing
	var away time.Time           // since when it does not; zero: it does
	defer silence.Stop()
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case v := <-views:
			silence.Reset(patience(v))
			away = time.Time{}
			w.findStore(c, st, v)
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
			follows.Go(func() { asked <- ask(c, st) })
		case err := <-asked:
			switch {
			case w.last.silent == 0: // the leader was heard meanwhile
				continue
			case err == nil:
				away, w.last.away = time.Time{}, 0
			case away.IsZero():
				away, w.last.away = time.Now(), w.last.WithoutStore()
			case time.Since(away) >= w.last.away:
				return w.gone()
			}
			silence.Reset(time.Second)
			if err := w.out.show(w.last); err != nil {
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

// findStore asks where the workers meet, once in a round.
func (w *watching) findStore(c context.Context, st store.Store, v rdzv.View) {
	if v.Phase == rdzv.Closed || v.Phase == rdzv.Complete && v.Round != w.round {
		w.store = ""
	}
	if v.Phase != rdzv.Complete || w.store != "" {
		return
	}
	c, cancel := context.WithTimeout(c, cli.AnswerPatience)
	defer cancel()
	if addr, err := agent.WorkersStore(c, st, w.job, v.Round); err == nil && addr != "" {
		w.store, w.round = "tcp://"+addr, v.Round
	}
}

// ask asks the store for anything.
func ask(c context.Context, st store.Store) error {
	c, cancel := context.WithTimeout(c, cli.AnswerPatience)
	defer cancel()
	_, err := st.Check(c, "anything")
	return err
}

// gone is the end of a watch whose store is no more.
func (w *watching) gone() error {
	return cli.Exit(cli.CodeFailed, fmt.Errorf("the store at %s, where the job %s meets, is gone, and with it all word of the job, which may have ended or go on without it", w.at, w.job))
}

// patience is how long a leader that lives is silent at most. A leader that has not shown its
// settings yet is taken to have the usual ones.
func patience(v rdzv.View) time.Duration {
	return max(cmp.Or(v.Config.Silence, usualSilence), 2*time.Second) / 2
}

// usualSilence is keep_alive_timeout where nobody gives another.
const usualSilence = 15 * time.Second

// see takes a view, and says whether that is all there is to see. One look alone is shown when the
// leader has said another word, or it could be of one that is long dead.
func (w *watching) see(v rdzv.View) (over bool, err error) {
	if theirs := v.Config.Proof; w.proof != "" && theirs != "" && theirs != w.proof {
		return true, cli.Exit(cli.CodeFailed, fmt.Errorf("the job %s at %s has another token than this: "+secrets.GiveOwn, w.job, w.at))
	}
	again, closed := !w.heard.IsZero(), v.Phase == rdzv.Closed
	w.last, w.heard = frame{View: v, at: w.at, job: w.job, store: w.store}, time.Now()
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
		if others, _ := agent.Jobs(c, st); len(others) > 0 {
			err = fmt.Errorf("%w; there are %s (--rdzv-id)", err, strings.Join(others, ", "))
		}
		return cli.Exit(cli.CodeMissing, err)
	case errors.Is(err, rdzv.ErrCorrupt):
		return cli.Exit(cli.CodeFailed, fmt.Errorf("what lies at %s for the job %s is of another version of weft, or something else: %w", w.at, w.job, err))
	case c.Err() == nil && !w.heard.IsZero() && (errors.Is(err, store.ErrUnreachable) || errors.Is(err, store.ErrClosed)):
		return w.gone()
	}
	return err
}

// explain says what may be done about a job that cannot be looked at.
func (w *watching) explain(err error, secure, inEtcd bool) error {
	var exit *cli.ExitError
	var sig cli.Signal
	switch {
	case err == nil || errors.As(err, &exit):
		return err
	case errors.As(err, &sig):
		return cli.Exit(128+int(sig), err)
	}
	if !inEtcd && !reach.AnotherJob(err) {
		if why := reach.Why(err, w.at); why != "" {
			return cli.Exit(cli.CodeFailed, fmt.Errorf("%s: does the job run, on the machine that hosts it, too, and is this its --rdzv-endpoint?", why))
		}
	}
	if advice := statusAdvice(err, secure, inEtcd); advice != "" {
		err = fmt.Errorf("%w\n%s", err, advice)
	}
	return cli.Exit(cli.CodeFailed, err)
}

func statusAdvice(err error, secure, inEtcd bool) string {
	var notTLS tls.RecordHeaderError
	switch refused := reach.Refusal(err); {
	case errors.Is(err, store.ErrForeign), errors.Is(err, store.ErrStranger):
		return "the store there is another user's: a job that several users of one host look into " +
			"needs a secret, or certificates: " + secrets.GiveOwn
	case inEtcd && (refused != "" || errors.As(err, &notTLS)):
		return "give the job's --rdzv-conf protocol=https,ca_cert=…,ssl_cert=…,ssl_cert_key=…"
	case inEtcd && errors.Is(err, store.ErrUnreachable):
		return "is that the address of a member of the cluster (clients' port, 2379 mostly), does it run, and does it speak TLS (--rdzv-conf protocol=https)?"
	case refused != "":
		return refused
	case !inEtcd && (errors.As(err, &notTLS) || secure && errors.Is(err, store.ErrUnreachable)):
		return "what listens there does not speak TLS with this secret, or these certificates: is it where the job meets, and does the job have any? Where it has none, give none, by flags or variables"
	case errors.Is(err, store.ErrProtocol):
		return "what listens there does not answer as a store: is it where the job meets?"
	case errors.Is(err, store.ErrUnreachable):
		return "what listens there hangs up or says nothing: is it where the job meets? If the job has a secret, or certificates, its store speaks TLS: " + secrets.GiveOwn
	}
	return ""
}
