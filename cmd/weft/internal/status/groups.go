package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"time"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/crew"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
)

// groupsWithin is for how long a worker is waited for that is asked for its groups.
const groupsWithin = 2 * time.Second

// oneLook refuses to ask workers again and again.
func (f *statusFlags) oneLook() error {
	if f.groups && (f.watch || f.json) {
		return errors.New("--groups is for one look, as text: leave out --watch and --json")
	}
	return nil
}

// showGroups asks the workers whose store has that URL what their groups wait in.
func (f *statusFlags) showGroups(c context.Context, out io.Writer, job, store string) error {
	if store == "" {
		_, err := fmt.Fprintln(out, "the job has no workers now, and no groups")
		return err
	}
	u, err := url.Parse(store)
	if err != nil {
		return err
	}
	id, err := secrets.Member{Flags: f.Flags.Flags, Job: job}.Identity("--groups", "status", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	n, err := crew.Network(id)
	if err != nil {
		return err
	}
	st, err := crew.Dial(c, u.Host, id, groupsWithin)
	if err != nil {
		return cli.Exit(cli.CodeFailed, fmt.Errorf("the workers' store %s: %w", store, err))
	}
	defer func() { _ = st.Close() }()
	all, _, err := crew.Ask(c, st, n, groupsWithin)
	if err != nil {
		return cli.Exit(cli.CodeFailed, err)
	}
	silent := 0
	for _, o := range all {
		if o.Err != nil {
			silent++
		}
	}
	if silent > 0 {
		fmt.Fprintf(out, "%d of %d workers say nothing of their groups; weft doctor --init %s says why\n", silent, len(all), store)
	}
	crew.PrintGroups(out, all)
	return nil
}
