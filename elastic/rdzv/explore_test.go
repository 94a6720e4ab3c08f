//go:build !race

package rdzv

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// explorer follows every order of steps, depth first, each table once.
type explorer struct {
	// choices are those that are followed, and what is eager happens with them.
	choices func(*table) []choice
	eager   bool
	alike   bool // tables that differ only in the nodes' names are one
	most    int  // tables

	seed maphash.Seed
	seen map[uint64]bool
	ends map[string]*trail // what came of it, where nothing more happens
}

// trail is a path, from its end.
type trail struct {
	choice
	before *trail
}

func (p *trail) String() string {
	var out []string
	for ; p != nil; p = p.before {
		out = append(out, fmt.Sprintf("%d %s of %d kills %v", p.seat, p.what, p.of, p.kills))
	}
	slices.Reverse(out)
	return strings.Join(out, "\n")
}

func (e *explorer) run(start *table) error {
	e.seed, e.seen, e.ends = maphash.MakeSeed(), map[uint64]bool{}, map[string]*trail{}
	type frame struct {
		w    *table
		path *trail
	}
	stack := []frame{{start, nil}}
	for len(stack) > 0 {
		f := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if mark := f.w.mark(e.seed, e.alike); e.seen[mark] {
			continue
		} else if e.seen[mark] = true; len(e.seen) > e.most {
			return fmt.Errorf("there are more than %d tables", e.most)
		}
		choices, quiet := e.choices(f.w), true
		for _, c := range choices {
			quiet = quiet && (disturbs(c) || len(c.kills) > 0)
			next := f.w.clone()
			err := next.make(c)
			if e.eager {
				next.hasten()
			}
			path := &trail{c, f.path}
			if err = cmp.Or(err, next.agree()); err != nil {
				return fmt.Errorf("%w\n%v", err, path)
			}
			stack = append(stack, frame{next, path})
		}
		if quiet {
			e.ends[f.w.end()] = f.path
			if err := f.w.settled(); err != nil {
				return fmt.Errorf("%w\n%v", err, f.path)
			}
		}
	}
	return nil
}

// disturbs says of a choice that it need not happen.
func disturbs(c choice) bool { return c.what == "crash" || c.what == "quit" || c.what == "doubt" }

// end is what has come of it for those alive, whatever their names.
func (w *table) end() string {
	var out []string
	for _, s := range w.seats {
		if s.dead {
			out = append(out, "dead")
			continue
		}
		var places []string
		for _, r := range slices.Sorted(maps.Keys(s.places)) {
			places = append(places, fmt.Sprint(s.places[r]))
		}
		out = append(out, fmt.Sprint(s.over, places))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// few are the choices that have to be followed to see all that can come of it:
//
// Where a node's next step is one that nobody else can tell from his own steps before or after it,
// it is taken at once, or the node crashes before it. A crash is of no consequence until somebody
// notices it, so that it happens only then, and where nothing else does.
func few(w *table) (out []choice) {
	for i, s := range w.seats {
		if !s.dead && len(s.todo) > 0 && w.unnoticed(i) {
			out = append(out, choice{seat: i, what: "op"})
			if w.crashes > 0 && !s.left {
				out = append(out, choice{seat: i, what: "crash"})
			}
			return out
		}
	}
	out = slices.DeleteFunc(w.choices(), func(c choice) bool { return c.what == "crash" })
	for i, s := range w.seats {
		if s.dead || len(s.todo) > 0 || w.crashes == 0 {
			continue
		}
		if s.role == leading {
			for of, o := range w.seats {
				if of != i && !o.dead && !o.left && s.state.members[o.node.ID] != nil {
					out = append(out, choice{seat: i, what: "silence", of: of, kills: []int{of}})
				}
			}
		}
		if l := w.leaders(s); s.role == following && !s.over && len(l) > 0 && len(l) <= w.crashes &&
			!slices.ContainsFunc(l, func(i int) bool { return w.seats[i].left }) {
			out = append(out, choice{seat: i, what: "suspect", kills: l})
		}
	}
	return append(out, w.unseen()...)
}

// unseen are the crashes that nobody can notice, where nobody else has anything to do.
func (w *table) unseen() (out []choice) {
	for set := 1; set < 1<<len(w.seats); set++ {
		var kills []int
		dead := *w
		dead.seats = slices.Clone(w.seats)
		for i, s := range w.seats {
			if set>>i&1 == 1 && !s.dead && !s.left {
				kills = append(kills, i)
				gone := *s
				dead.seats[i] = &gone
				dead.kill(&gone)
			} else if set>>i&1 == 1 {
				kills = append(kills, i)
				dead.crashes = -1
			}
		}
		if dead.crashes < 0 || len(kills) == len(w.seats) {
			continue
		}
		idle := true
		for _, c := range dead.choices() {
			idle = idle && (disturbs(c) || c.what == "live")
		}
		if idle {
			out = append(out, choice{what: "none", kills: kills})
		}
	}
	return out
}

// unnoticed says that whatever others do before a node's next operation they can as well do after
// it, and the other way round.
func (w *table) unnoticed(i int) bool {
	s := w.seats[i]
	o := s.todo[0]
	for k := 0; private(o) && k+1 < len(s.todo); k++ {
		o = s.todo[k+1]
	}
	if w.doubts > 0 || s.role != leading {
		return false
	}
	held := w.values[keyLeader]
	if o.kind == opSwap && held != string(o.old) || o.kind != opSwap && held != string(s.raw) {
		return false // somebody else leads, it does not know yet
	}
	for _, t := range w.seats {
		if t.dead || t == s {
			continue
		}
		if t.role == leading || t.role == electing && t.heard.Before(w.now) {
			return false // it has yet to tell what it has decided, or may be about to take over
		}
		if o.kind == opPush {
			continue
		}
		if t.role != following || t.lease.Term != s.lease.Term || w.matters(t) {
			return false
		}
		if o.kind == opSet && (o.key != keySummary || w.concerns(string(o.new), t)) {
			return false
		}
	}
	return o.kind == opSwap || o.kind == opSet || o.kind == opPush && o.key != keyInbox
}

// hasten lets everybody take what changes nothing but what the node knows of its place: it makes no
// difference when that happens.
func (w *table) hasten() {
	for _, s := range w.seats {
		queue := keyTo(s.node.ID)
		for !s.dead && len(w.queues[queue]) > 0 {
			a, err := readAnswer([]byte(w.queues[queue][0]))
			if err != nil || a.Kind != Place && a.Kind != Wait && a.Kind != Spare {
				break
			}
			s.answered(w.take(queue, 1)[0], w.now)
			s.hear()
		}
		if s.dead {
			delete(w.queues, queue)
		}
	}
}

// mark is the whole of the table as a number; tables with the same one go on in the same ways.
func (w *table) mark(seed maphash.Seed, alike bool) uint64 {
	var common bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(w.values)) {
		fmt.Fprintf(&common, "%s %s\n", k, w.withoutBeat(k, w.values[k]))
	}
	for _, m := range w.queues[keyInbox] {
		common.WriteString(m)
	}
	common.Write([]byte{byte(w.crashes), byte(w.doubts)})
	seats := make([][]byte, len(w.seats))
	for i, s := range w.seats {
		seats[i] = w.markSeat(s)
	}
	order := make([]int, len(seats))
	for i := range order {
		order[i] = i
	}
	if !alike {
		return sum(seed, common.Bytes(), seats, order)
	}
	// Those that look different to somebody who cannot tell names have a natural order; of the
	// others every order is tried.
	looks := make([]uint64, len(seats))
	for i := range seats {
		names := bytes.Repeat([]byte{'x'}, len(seats))
		names[i] = 's'
		looks[i] = maphash.Bytes(seed, rename(nil, seats[i], names))
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(looks[a], looks[b]) })
	least := ^uint64(0)
	var try func(k int)
	try = func(k int) {
		if k == len(order) {
			least = min(least, sum(seed, common.Bytes(), seats, order))
			return
		}
		for j := k; j < len(order) && looks[order[j]] == looks[order[k]]; j++ {
			order[k], order[j] = order[j], order[k]
			try(k + 1)
			order[k], order[j] = order[j], order[k]
		}
	}
	try(0)
	return least
}

// sum is of a table whose seats are named in this order.
func sum(seed maphash.Seed, common []byte, seats [][]byte, order []int) uint64 {
	names := make([]byte, len(order))
	for at, i := range order {
		names[i] = '0' + byte(at)
	}
	var h maphash.Hash
	h.SetSeed(seed)
	buf := rename(nil, common, names)
	h.Write(buf)
	for _, i := range order {
		buf = rename(buf[:0], seats[i], names)
		h.Write(buf)
	}
	return h.Sum64()
}

// rename gives each node in b another name.
func rename(out, b, names []byte) []byte {
	out = append(out, b...)
	for i := 1; i < len(out); i++ {
		if n := int(out[i]) - '0'; out[i-1] == 'N' && n >= 0 && n < len(names) {
			out[i] = names[n]
		}
	}
	return out
}

func (w *table) markSeat(s *seat) []byte {
	var h bytes.Buffer
	h.Write([]byte{b2i(s.dead), b2i(s.left)})
	for _, r := range slices.Sorted(maps.Keys(s.places)) {
		fmt.Fprint(&h, s.places[r])
	}
	if s.dead {
		return h.Bytes()
	}
	for _, m := range w.queues[keyTo(s.node.ID)] {
		h.WriteString(m)
	}
	h.WriteString(s.node.ID)
	h.Write([]byte{byte(s.role), byte(s.intent.Kind), byte(s.known), byte(s.round), b2i(s.over), byte(s.beat.Term), byte(s.beat.Summary.Round),
		b2i(s.heard.Before(w.now)), b2i(s.seen == w.values[keySummary])})
	h.Write(s.raw)
	for _, a := range s.pending {
		fmt.Fprintf(&h, "%s %d %d/%d of %d;", a.ID, a.Kind, a.Placement.Rank, a.Placement.Nodes, a.Placement.Round)
	}
	for _, o := range s.todo {
		h.WriteByte(byte(o.kind))
		h.WriteString(o.key)
		h.Write(o.old)
		h.WriteString(w.withoutBeat(o.key, string(o.new)))
	}
	if s.state != nil {
		blob, err := s.state.encode(w.now)
		fmt.Fprintf(&h, "%s %v %d", blob, err, s.saved)
	}
	return h.Bytes()
}

// withoutBeat is a value, but for a bulletin's number, which only orders it.
func (w *table) withoutBeat(key, value string) string {
	if key == keyShown {
		return "" // for others than peers
	}
	if key != keySummary {
		return value
	}
	b := w.bulletin(value)
	return string([]byte{byte(b.Term), b2i(b.Vacant), byte(b.Summary.Phase), byte(b.Summary.Round)})
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// everything follows every choice, of every table.
func everything() *explorer {
	return &explorer{choices: (*table).choices, most: 1_000_000}
}

// enough sees all that everything does, of far fewer tables.
func enough() *explorer {
	return &explorer{choices: few, eager: true, alike: true, most: 20_000_000}
}

// job is a table to begin with.
type job struct{ nodes, least, crashes, doubts int }

func (j job) table() *table {
	return newTable(j.nodes, Config{Min: j.least, Max: j.nodes, LastCall: -1, Settle: -1}, j.crashes, j.doubts)
}

// In each of them the nodes agree at every step, and whoever lives is in one round when nothing
// more can happen.
func TestEveryInterleavingOfAFewNodesCrashesAndDoubtsAgreesAndSettles(t *testing.T) {
	jobs := []job{{2, 1, 2, 0}, {2, 2, 1, 0}, {2, 1, 0, 1}, {3, 1, 0, 0}, {3, 3, 1, 0}}
	if soak.Cases(1) > 1 {
		jobs = append(jobs, job{2, 1, 1, 1}, job{3, 1, 1, 0}, job{3, 2, 2, 0}, job{3, 1, 2, 0}, job{3, 1, 0, 1}, job{3, 1, 1, 1})
	}
	for _, j := range jobs {
		e := enough()
		require.NoError(t, e.run(j.table()), "%+v", j)
		t.Logf("%+v: %d states, %d ends", j, len(e.seen), len(e.ends))
	}
}

func TestTheInterleavingsThatAreFollowedEndInEveryWayThatAllOfThemDo(t *testing.T) {
	jobs := []job{{2, 2, 1, 0}, {2, 1, 0, 1}}
	if soak.Cases(1) > 1 {
		jobs = append(jobs, job{2, 1, 2, 0}, job{2, 1, 1, 1}, job{3, 2, 0, 0}, job{3, 1, 0, 0}, job{3, 3, 1, 0})
	}
	for _, j := range jobs {
		all, some := everything(), enough()
		require.NoError(t, all.run(j.table()), "%+v", j)
		require.NoError(t, some.run(j.table()), "%+v", j)
		require.ElementsMatch(t, slices.Collect(maps.Keys(all.ends)), slices.Collect(maps.Keys(some.ends)), "%+v", j)
		require.Less(t, len(some.seen), len(all.seen)/3)
	}
}

func TestAStoreThatSetsWithoutComparingIsFoundOut(t *testing.T) {
	for _, e := range []*explorer{everything(), enough()} {
		w := job{2, 1, 0, 1}.table()
		w.blind = true
		require.Error(t, e.run(w))
	}
}
