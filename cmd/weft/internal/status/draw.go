package status

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/elastic/rdzv"
)

// frame is what there is to show of a job.
type frame struct {
	rdzv.View
	at, job string
	silent  time.Duration // for so long its leader has said nothing; 0: it does
	away    time.Duration // its store does not answer: after so long the watch ends; 0: it does
	store   string        // URL of the workers' store; "" where it is not known
}

// board shows frames: each whole, or on a terminal in place of the one before, or as lines of what
// has changed.
type board struct {
	w        io.Writer
	json     bool
	terminal *os.File // nil if it is none
	before   *frame
	known    map[string]rdzv.Seen // the nodes as they were last shown, those too that a new leader has yet to hear of
	drawn    int                  // lines on the terminal that the next frame replaces
}

func newBoard(w io.Writer, asJSON bool) *board {
	return &board{w: w, json: asJSON, terminal: cli.Terminal(w)}
}

// show shows a frame, or what is new in it.
func (r *board) show(f frame) error {
	first := r.before == nil
	var news []string
	if !first {
		news = r.changes(f)
	}
	same := !first && reflect.DeepEqual(f.asJSON().still(), r.before.asJSON().still())
	r.remember(f)
	switch {
	case r.json && same:
		return nil
	case r.json:
		return json.NewEncoder(r.w).Encode(f.asJSON())
	case r.terminal != nil:
		return r.redraw(f)
	case first:
		_, err := io.WriteString(r.w, f.text())
		return err
	}
	for _, line := range news {
		if _, err := fmt.Fprintf(r.w, "%v: %s\n", since(f.Age), line); err != nil {
			return err
		}
	}
	return nil
}

// remember takes a frame as the last one that was shown. Who has gone is forgotten, and may come
// again.
func (r *board) remember(f frame) {
	if r.known == nil {
		r.known = map[string]rdzv.Seen{}
	}
	for _, e := range f.Ended {
		if !r.ended(e.ID) {
			delete(r.known, e.ID)
		}
	}
	for _, n := range f.Nodes {
		if b, there := r.known[n.ID]; there && n.First < 0 {
			n.First = b.First // between two rounds
		}
		r.known[n.ID] = n
	}
	r.before = &f
}

// ended says whether a node's end was shown.
func (r *board) ended(id string) bool {
	return r.before != nil && slices.ContainsFunc(r.before.Ended, func(e rdzv.Parted) bool { return e.ID == id })
}

// tick has the ages on a terminal go on between a leader's words.
func (r *board) tick(f frame, later time.Duration) error {
	if r.terminal == nil || r.json {
		return nil
	}
	return r.redraw(f.later(later))
}

func (r *board) note(text string) error {
	_, err := fmt.Fprintln(r.w, text)
	return err
}

// redraw draws in place of what was drawn before, as much as the terminal has room for.
func (r *board) redraw(f frame) error {
	width, height, err := term.GetSize(int(r.terminal.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	lines := fit(strings.Split(strings.TrimSuffix(f.text(), "\n"), "\n"), width, height)
	up := ""
	if r.drawn > 0 {
		up = fmt.Sprintf("\x1b[%dA", r.drawn)
	}
	r.drawn = len(lines)
	_, err = fmt.Fprintf(r.w, "%s\x1b[J%s\n", up, strings.Join(lines, "\n"))
	return err
}

// fit makes lines fit on a screen.
func fit(lines []string, width, height int) []string {
	if most := max(height-1, 2); len(lines) > most {
		left := len(lines) - most + 1
		lines = append(slices.Clone(lines[:most-1]), fmt.Sprintf("… and %d lines more", left))
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		runes := []rune(l)
		out[i] = string(runes[:min(len(runes), width)])
	}
	return out
}

// later is the frame after some time in which nothing was heard.
func (f frame) later(d time.Duration) frame {
	f.Age += d
	f.For += d
	if f.Left > 0 {
		f.Left = max(f.Left-d, 1)
	}
	f.Nodes, f.Ended = slices.Clone(f.Nodes), slices.Clone(f.Ended)
	for i := range f.Nodes {
		n := &f.Nodes[i]
		n.For += d
		if n.Silent > 0 {
			n.Silent += d
		}
		n.Earlier = slices.Clone(n.Earlier)
		for k := range n.Earlier {
			n.Earlier[k].Ago += d
		}
	}
	for i := range f.Ended {
		f.Ended[i].Ago += d
	}
	return f
}

// text is the frame for people.
func (f frame) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s at %s, for %v: %s\n", cli.Plain(f.job), f.at, since(f.Age), f.headline())
	cfg := f.Config
	if f.beginning() {
		if f.silent > 0 {
			fmt.Fprintf(&b, "it has said nothing for %v\n", since(f.silent))
		}
		return b.String()
	}
	fmt.Fprintf(&b, "restarts: %d of %d", f.Restarts, f.MaxRestarts)
	if cfg.Silence > 0 {
		fmt.Fprintf(&b, "; restart policy: %v; a node is lost after %v without a word", cfg.Policy, cfg.Silence)
	}
	fmt.Fprintln(&b)
	if f.store != "" {
		fmt.Fprintf(&b, "the workers' store: %s\n", cli.Plain(f.store))
	}
	if f.silent > 0 {
		fmt.Fprintf(&b, "NO WORD of its leader for %v: all this is what was so before; the leader, or all of the job, may be dead\n", since(f.silent))
		if f.away > 0 {
			fmt.Fprintf(&b, "its store does not answer; unless it does, this ends in %v\n", since(f.away))
		}
	} else if f.Leader == "" && f.Phase != rdzv.Closed {
		fmt.Fprintln(&b, "nobody leads at this moment")
	}
	if f.Nodes == nil && f.Summary.Nodes > 0 {
		fmt.Fprintf(&b, "%d nodes take part, %d wait, %d are redundant: too many to be listed\n", f.Summary.Nodes, f.Waiting, f.Redundant)
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(f.Nodes) > 0 {
		fmt.Fprintln(t, "RANK\tSTATE\tSINCE\tHEARD\tRANKS\tFAILED\tADDRESS\tNODE")
	}
	for _, n := range f.Nodes {
		leads := ""
		if n.ID == f.Leader {
			leads = ", leads"
		}
		fmt.Fprintf(t, "%s\t%s\t%v\t%s\t%s\t%d\t%s\t%s%s%s\n",
			rank(n.Rank), state(n), since(n.For), f.heard(n), workers(n), n.Failures, cli.Plain(n.Addr), cli.Plain(n.ID), leads, back(n))
	}
	_ = t.Flush() // into a strings.Builder
	t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(f.Ended) > 0 { // the reason is not what a narrow terminal cuts
		fmt.Fprintln(t, "RANK\tENDED\tAGO\tWHY, NODE")
	}
	for _, e := range f.Ended {
		fmt.Fprintf(t, "%s\t%v\t%v\t%s\n", rank(e.Rank), e.How, since(e.Ago), why(e))
	}
	_ = t.Flush() // into a strings.Builder
	return b.String()
}

// beginning says whether the job's first leader has yet to show who takes part.
func (f frame) beginning() bool {
	return f.Config.Silence == 0 && f.Phase == rdzv.Gathering && f.Round == 0 && f.Summary.Nodes == 0
}

// size is how many nodes a round may have.
func (f frame) size() string {
	if f.Min == f.Max {
		return strconv.Itoa(f.Max)
	}
	return fmt.Sprintf("%d to %d", f.Min, f.Max)
}

// headline says how far the round is.
func (f frame) headline() string {
	if f.beginning() {
		return "it is just beginning, and its leader has yet to show who takes part"
	}
	switch f.Phase {
	case rdzv.Gathering:
		if lack := f.Min - f.Summary.Nodes; lack > 0 {
			return fmt.Sprintf("round %d needs %d more (%d of %s are there) since %v%s", f.Round, lack, f.Summary.Nodes, f.size(), since(f.For), f.more(", and waits for "))
		}
		return fmt.Sprintf("round %d has %d of %s nodes, and takes others%s", f.Round, f.Summary.Nodes, f.size(), f.more(" for "))
	case rdzv.Complete:
		return fmt.Sprintf("round %d is complete with %d of %s nodes since %v", f.Round, f.Summary.Nodes, f.size(), since(f.For))
	}
	how := "ended well"
	if f.Failed {
		how = "failed"
	}
	return fmt.Sprintf("%s %v ago%s", how, since(f.For), because(f.Outcome))
}

// more says how much longer a round waits, if that is known.
func (f frame) more(what string) string {
	if f.Left == 0 {
		return ""
	}
	return what + up(f.Left).String() + " more"
}

// heard says when a node was heard of, and where it is late when it is lost.
func (f frame) heard(n rdzv.Seen) string {
	switch {
	case n.Done:
		return "-" // nobody waits for its word
	case n.Silent == 0:
		return "<" + up(f.heardWithin()).String()
	}
	return fmt.Sprintf("%v ago, lost in %v", since(n.Silent), up(f.lostIn(n)))
}

// heardWithin is how long ago a node that is not late was heard of at most: with the leader's next
// word it would be.
func (f frame) heardWithin() time.Duration { return f.Config.Late() + f.Config.Silence/6 + f.silent }

// lostIn is when a late node is lost unless it says a word.
func (f frame) lostIn(n rdzv.Seen) time.Duration { return max(f.Config.Silence-n.Silent, 0) }

// back says what became of a node's life before this one.
func back(n rdzv.Seen) string {
	if len(n.Earlier) == 0 {
		return ""
	}
	e, in := n.Earlier[0], ""
	if e.ID != n.ID {
		in = " as " + cli.Plain(e.ID)
	}
	return fmt.Sprintf("; it is back: %v %v ago%s%s", e.How, since(e.Ago), in, because(e.Why))
}

func rank(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// state is in, done, waiting or redundant.
func state(n rdzv.Seen) string {
	switch {
	case n.Done:
		return "done"
	case n.Standing == "participating":
		return "in"
	}
	return n.Standing
}

// workers are the ranks of a node's workers, or how many they would be.
func workers(n rdzv.Seen) string {
	switch {
	case n.First < 0:
		return fmt.Sprintf("(%d)", n.Slots)
	case n.Slots == 1:
		return strconv.Itoa(n.First)
	}
	return fmt.Sprintf("%d-%d", n.First, n.First+n.Slots-1)
}

// why says why a node's part has ended, and whose it was.
func why(e rdzv.Parted) string {
	if e.Why == "" {
		return cli.Plain(e.ID)
	}
	return cli.Plain(e.Why) + " (" + cli.Plain(e.ID) + ")"
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + cli.Plain(why)
}

// since is a time for people.
func since(d time.Duration) time.Duration { return max(d, 0).Round(time.Second) }

// up is a time that is left, for people.
func up(d time.Duration) time.Duration { return (max(d, 0) + time.Second - 1).Truncate(time.Second) }
