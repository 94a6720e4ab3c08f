package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/crew"
	"github.com/weft-project/weft/cmd/weft/internal/reach"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

const maxRows = 40 // of pairs, unless all are asked for

// jobFlags are those of "weft doctor --init".
type jobFlags struct {
	secrets.Member
	init    string
	timeout time.Duration
	all     bool
}

// examineJob asks the workers of a running job, and prints which lanes each pair uses.
func examineJob(c context.Context, w io.Writer, f jobFlags) error {
	addr, errInit := storeAddress(f.init)
	id, errID := f.Identity("--init", "doctor", slog.New(slog.DiscardHandler))
	var errTimeout error
	if f.timeout <= 0 {
		errTimeout = fmt.Errorf("--timeout: expected more than 0, got %v", f.timeout)
	}
	if err := errors.Join(errInit, errID, errTimeout); err != nil {
		return err
	}
	o, err := f.observeJob(c, addr, id)
	if err != nil {
		return cli.Exit(cli.CodeFailed, err)
	}
	addr, answers := o.addr, o.workers
	answered, strangers := 0, 0
	for _, o := range answers {
		switch {
		case o.Err == nil:
			answered++
		case errors.Is(o.Err, transport.ErrIdentity):
			strangers++
		}
	}
	if answered == 0 && strangers > 0 {
		return cli.Exit(cli.CodeFailed, fmt.Errorf("the workers at %s do not take this token, or these certificates, or are of another job's id: "+secrets.GiveOwn+", and its --rdzv-id (weft run without any makes a secret that nobody else has)", addr))
	}
	if o.epoch >= 0 {
		fmt.Fprintf(w, "store tcp://%s, epoch %d of its elastic job\n", addr, o.epoch)
	}
	printPairs(w, answers, f.all)
	crew.PrintGroups(w, answers)
	printSilent(w, answers, addr)
	if answered == 0 {
		return cli.Exit(cli.CodeFailed, fmt.Errorf("no worker of the job at %s answered: are they still running? where they are on another machine, run this there", addr))
	}
	if silent := len(answers) - answered; silent > 0 {
		return cli.Exit(cli.CodeFailed, fmt.Errorf("%d of %d workers were not reached", silent, len(answers)))
	}
	return nil
}

// storeAddress reads tcp://host:port.
func storeAddress(init string) (string, error) {
	u, err := url.Parse(init)
	if err != nil || u.Scheme != "tcp" || u.Hostname() == "" || u.Port() == "" {
		return "", fmt.Errorf("--init: expected tcp://host:port of the job's store, or of where its machines meet, got %q", init)
	}
	return net.JoinHostPort(u.Hostname(), u.Port()), nil
}

// pair is two workers that have a link, or had one.
type pair struct {
	a, b                      string
	calls, tensors, why, gone string
}

// fine says that there is nothing to say.
func (p pair) fine() bool { return p.why == "" && p.gone == "" }

// pairs lists them by rank, and counts those that have no link. What either end says of a lost link
// counts; of lanes, what the first one says.
func pairs(workers []rpc.Observed) (list []pair, unlinked int) {
	type key struct{ low, high int }
	at := map[key]int{}
	none := map[key]bool{}
	for _, o := range workers {
		if o.Status == nil {
			continue
		}
		for _, p := range o.Status.Peers {
			k := key{min(o.Rank, p.Rank), max(o.Rank, p.Rank)}
			if p.Calls == "" && p.Gone == "" {
				none[k] = true
				continue
			}
			i, there := at[k]
			if !there {
				i = len(list)
				at[k] = i
				first := pair{a: o.Name, b: p.Name, calls: p.Calls, tensors: p.Tensors, why: p.Why}
				if p.Rank < o.Rank {
					first.a, first.b = first.b, first.a
				}
				list = append(list, first)
			}
			if p.Gone != "" && list[i].gone == "" {
				list[i].gone = p.Gone
			}
		}
	}
	for k := range none {
		if _, linked := at[k]; !linked {
			unlinked++
		}
	}
	return list, unlinked
}

// printPairs prints all pairs, or where they are many those that are not at their best first.
func printPairs(w io.Writer, workers []rpc.Observed, all bool) {
	list, unlinked := pairs(workers)
	fmt.Fprintf(w, "workers %d, linked pairs %d", len(workers), len(list))
	if unlinked > 0 {
		fmt.Fprintf(w, ", and %d without a link so far", unlinked)
	}
	fmt.Fprintln(w)
	shown, left := list, 0
	if !all && len(list) > maxRows {
		shown = nil
		for _, want := range []bool{false, true} {
			for _, p := range list {
				if p.fine() == want && len(shown) < maxRows {
					shown = append(shown, p)
				}
			}
		}
		left = len(list) - len(shown)
	}
	if len(shown) > 0 {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "\nWORKER\tWORKER\tCALLS\tTENSORS\tWHY NOT BETTER")
		for _, p := range shown {
			if p.gone != "" {
				p.calls, p.tensors, p.why = "-", "-", p.gone
			}
			if p.why != "" {
				p.tensors += "\t" + p.why
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", p.a, p.b, p.calls, p.tensors)
		}
		_ = tw.Flush()
	}
	if left > 0 {
		fmt.Fprintf(w, "… and %d more; --all shows them\n", left)
	}
}

// printSilent says who did not answer. at is the address of the job's store.
func printSilent(w io.Writer, workers []rpc.Observed, at string) {
	heading := "\nnot reached:\n"
	for _, o := range workers {
		if o.Err == nil {
			if o.Status.Omitted > 0 {
				fmt.Fprintf(w, "%s left out %d of its peers\n", o.Name, o.Status.Omitted)
			}
			continue
		}
		fmt.Fprint(w, heading)
		heading = ""
		name := fmt.Sprintf("rank %d", o.Rank)
		if o.Name != "" {
			name += ", " + o.Name + " at " + o.Addr
		}
		fmt.Fprintf(w, "  %s: %s%s\n", name, cli.Plain(o.Err.Error()), whyUnreachable(o, at))
	}
}

// whyUnreachable guesses. A store on loopback is on this machine, and so are workers that are.
func whyUnreachable(o rpc.Observed, store string) string {
	silent := errors.Is(o.Err, rpc.ErrTimeout)
	switch {
	case !silent && !errors.Is(o.Err, transport.ErrUnreachable):
		return ""
	case loopback(o.Addr) && !loopback(store):
		return "; only its own machine reaches that address: run this there, or set rpc.Config.Listen"
	case silent:
		return "; it hangs, is still joining, or something on the way drops UDP"
	}
	return ""
}

func loopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	return reach.Loopback(host)
}
