package status

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/elastic/rdzv"
)

// changes are what has become of a job since the last frame.
func (r *board) changes(now frame) (out []string) {
	old := r.before
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, e := range slices.Backward(now.Ended) {
		if !r.ended(e.ID) {
			add("%s: %v%s", cli.Plain(e.ID), e.How, because(e.Why))
		}
	}
	for _, n := range now.Nodes {
		b, there := r.known[n.ID]
		id := cli.Plain(n.ID)
		switch {
		case !there:
			add("%s comes, and is %s", id, state(n))
		case state(b) != state(n):
			add("%s is %s", id, state(n))
		}
		if len(n.Earlier) > len(b.Earlier) {
			add("%s%s", id, back(n))
		}
		switch late := n.Silent > 0; {
		case late && b.Silent == 0:
			add("no word of %s for %v; in %v it is lost", id, since(n.Silent), up(now.lostIn(n)))
		case !late && b.Silent > 0:
			add("there is word of %s again", id)
		}
		if n.Failures > b.Failures {
			add("a worker of %s has failed: restart %d of %d", id, now.Restarts, now.MaxRestarts)
		}
		switch {
		case n.Rank >= 0 && (!there || n.Rank != b.Rank):
			add("%s has rank %d", id, n.Rank)
		case there && n.First >= 0 && (n.First != b.First || n.Slots != b.Slots):
			add("%s has the workers %s", id, workers(n))
		}
	}
	if old.store != now.store && now.store != "" {
		add("the workers' store is %s", cli.Plain(now.store))
	}
	if old.Leader != now.Leader && now.Leader != "" {
		add("%s leads", cli.Plain(now.Leader))
	}
	if old.Round != now.Round || old.Phase != now.Phase || now.Phase == rdzv.Gathering && old.Summary.Nodes != now.Summary.Nodes {
		add("%s", now.headline())
	}
	switch {
	case now.silent > 0 && old.silent == 0:
		add("no word of the leader for %v", since(now.silent))
	case now.silent == 0 && old.silent > 0:
		add("there is word of a leader again")
	}
	switch {
	case now.away > 0 && old.away == 0:
		add("the store at %s does not answer; unless it does, this ends in %v", now.at, now.away)
	case now.away == 0 && old.away > 0 && now.silent > 0:
		add("the store answers again")
	}
	return out
}
