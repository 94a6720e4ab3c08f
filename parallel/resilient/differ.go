package resilient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/parallel/resilient/internal/ledger"
)

// compare fails where members differ: on all where they begin, and later on who differs.
func (t *Team) compare(c context.Context, all []word) error {
	ref, begins := 0, true
	for rank, s := range all {
		if s.Status.Era != "" && begins {
			ref, begins = rank, false
		}
	}
	if !slices.ContainsFunc(all, func(s word) bool { return s.Spec != all[ref].Spec }) {
		return nil
	}
	lists, err := collective.Agree(c, t.g, t.spec)
	if err != nil {
		return err
	}
	for rank, list := range lists {
		if slices.Equal(list, lists[ref]) || !begins && rank != t.g.Rank() {
			continue
		}
		e := &DifferenceError{Worker: workers(t.g)[rank], Other: workers(t.g)[ref]}
		for i := range max(len(list), len(lists[ref])) {
			e.Here, e.There = at(list, i), at(lists[ref], i)
			if e.Here != e.There {
				return e
			}
		}
	}
	return fmt.Errorf("%w: a newcomer differs, and goes", collective.ErrAborted)
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

// named gives a difference the names of the workers.
func (t *Team) named(err error) error {
	var differ *ledger.DifferError
	if !errors.As(err, &differ) {
		return err
	}
	var names []string
	for _, rank := range differ.Ranks {
		names = append(names, workers(t.g)[rank])
	}
	return fmt.Errorf("%w: %s: %s", ErrDifferent, strings.Join(names, ", "), differ.What)
}
