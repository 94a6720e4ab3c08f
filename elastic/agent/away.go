package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/store"
)

// awayNews is the handler of what the rendezvous and the stores here log for people, in their
// words: a store is out of reach, or back, or has refused a stranger.
type awayNews struct {
	say   func(string)
	store string // what people call it
}

// storeName is what people call the store in which the nodes meet.
func (s Spec) storeName() string {
	if s.Meet != nil {
		return "the store at " + s.Endpoint
	}
	return "the machine at " + s.Endpoint + ", which hosts the rendezvous,"
}

// Enabled says whether people are to know.
func (a awayNews) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle says it.
func (a awayNews) Handle(_ context.Context, r slog.Record) error {
	values := map[string]slog.Value{}
	var all []string
	r.Attrs(func(at slog.Attr) bool {
		values[at.Key] = at.Value
		all = append(all, at.String())
		return true
	})
	switch r.Message {
	case rdzv.StoreAway:
		err, _ := values["err"].Any().(error)
		a.say(fmt.Sprintf("%s is out of reach (%v); if it does not come back, this node gives up in %v", a.store, root(err), values["for"]))
	case rdzv.StoreBack:
		a.say(fmt.Sprintf("%s is back after %v", a.store, values["after"]))
	default:
		a.say(strings.Join(append([]string{r.Message}, all...), " "))
	}
	return nil
}

// WithAttrs and WithGroup change nothing: nobody uses them.
func (a awayNews) WithAttrs([]slog.Attr) slog.Handler { return a }

// WithGroup see WithAttrs.
func (a awayNews) WithGroup(string) slog.Handler { return a }

// lostError is that the rendezvous cannot go on; where its store is away, in few words.
type lostError struct {
	store string
	err   error
}

func (e *lostError) Error() string {
	if errors.Is(e.err, rdzv.ErrNoStore) {
		return fmt.Sprintf("%s is gone: %v", e.store, root(e.err))
	}
	return fmt.Sprintf("the rendezvous cannot go on: %v", e.err)
}

func (e *lostError) Unwrap() error { return e.err }

// root is the error at the end of err's chain, which says what happened and not to whom; of several
// the last one but for store.ErrUncertain.
func root(err error) error {
	for {
		var within error
		switch e := err.(type) { //nolint:errorlint // it is the chain that is walked
		case interface{ Unwrap() error }:
			within = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				if one != store.ErrUncertain { //nolint:errorlint // that is what it means, not what happened
					within = one
				}
			}
		}
		if within == nil {
			return err
		}
		err = within
	}
}
