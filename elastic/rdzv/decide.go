package rdzv

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// decision collects what one event leads to.
type decision struct {
	*State
	now     time.Time
	actions []Action
	reasons []string
}

func (d *decision) because(format string, args ...any) {
	d.reasons = append(d.reasons, fmt.Sprintf(format, args...))
}

func (d *decision) act(a Action) { d.actions = append(d.actions, a) }

// Decide takes an event at the time now, which must never go back, changes the state, and says whom
// to tell what, and for people why something changed ("" if nothing did). A node that is not known
// is told so, unless it joins.
//
// The order in which a Join is judged is torchrun's: closed; redundant; already placed; too late,
// which is a Tick's matter here; complete; gathering.
func (s *State) Decide(e Event, now time.Time) (actions []Action, reason string) {
	d := &decision{State: s, now: now}
	if s.began.IsZero() {
		s.began, s.since = now, now
	}
	if e.Kind == Join {
		d.join(e.Node, e.Config, e.Past)
	} else if m := s.members[e.ID]; m != nil {
		d.saw(m)
		d.heard(m, e)
	} else if e.Kind != Tick && e.Kind != Leave && !(e.Kind == Done && d.phase != Closed && d.finished(e.ID)) {
		d.stranger(e.ID)
	}
	d.expire()
	d.despair()
	d.form()
	if len(d.reasons) > 0 {
		s.looks++
	}
	return d.actions, strings.Join(d.reasons, "; ")
}

// join judges a node that wants to take part. It may ask as often as it likes.
func (d *decision) join(n Node, cfg Config, past Past) {
	m := d.members[n.ID]
	switch {
	case d.phase == Closed:
		d.act(d.farewell(n.ID))
		return
	case m == nil:
		d.arrive(n, cfg, past)
		return
	}
	d.saw(m)
	d.recall(m, past)
	switch {
	case m.on == participating && d.phase == Complete:
		d.act(Action{Kind: Place, ID: m.ID, Placement: m.place})
	case m.on == waiting:
		d.act(Action{Kind: Wait, ID: m.ID})
	case m.on == redundant:
		d.act(Action{Kind: Spare, ID: m.ID})
	}
}

// arrive takes a node in that was not there.
func (d *decision) arrive(n Node, cfg Config, past Past) {
	err := n.validate()
	if err == nil && len(d.members) >= maxNodes {
		err = fmt.Errorf("%w: it has %d nodes already", ErrRefused, len(d.members))
	}
	if cfg, bad := cfg.Populate(); err == nil && (bad != nil || cfg != d.cfg) {
		err = d.cfg.differs(cfg)
	}
	if m := d.wants[n.Want]; err == nil && m != nil {
		err = fmt.Errorf("%w: node rank %d is taken by %s at %s; if that is gone for good, it is free in %v at most",
			ErrTaken, n.Want-1, m.ID, m.Addr, d.cfg.Silence)
	}
	if err != nil {
		d.act(Action{Kind: Refuse, ID: n.ID, Err: err})
		return
	}
	came := d.came(n)
	d.arrivals++
	d.succeed(n)
	m := &member{Node: n, order: d.arrivals, rank: -1, lastSeen: d.now, since: d.now, expires: d.now.Add(d.cfg.JoinTimeout)}
	d.enrol(m)
	d.recall(m, past)
	switch {
	case d.phase == Gathering && d.counts[participating] < d.cfg.Max:
		d.count(m, participating)
	case d.counts[participating]+d.counts[waiting] < d.cfg.Max && !d.finishing():
		d.count(m, waiting)
		d.act(Action{Kind: Wait, ID: n.ID})
	default:
		m.expires = time.Time{}
		d.count(m, redundant)
		d.act(Action{Kind: Spare, ID: n.ID})
	}
	if m.on == redundant {
		came += "; it is redundant"
	}
	d.note(n.ID, "node %s %s", n.ID, came)
	d.because("%s comes and is %s", n.ID, m.on)
	d.linger()
}

// saw notes that a member is not silent.
func (d *decision) saw(m *member) {
	m.lastSeen = d.now
	if m.awaited {
		m.awaited = false
		d.awaited--
	}
}

// heard takes what a known node says.
func (d *decision) heard(m *member, e Event) {
	if d.phase == Closed {
		if e.Kind != Leave {
			d.act(d.farewell(m.ID))
			return
		}
		d.remove(m)
		return
	}
	switch e.Kind {
	case Leave:
		if !m.done { // who is done may go; its round goes on with its ranks as they are
			d.lose(m, HasLeft, e.Why, "leaves"+colon(e.Why))
		}
	case Close:
		d.close(true, m.ID+" closes the rendezvous"+colon(e.Why))
	case Done:
		d.doneWith(m, e.Round)
	case Fail:
		d.fail(m, e)
	}
}

// doneWith takes it that a node was done with a round. If there is a later one that counts on it,
// its place in that starts its workers again.
func (d *decision) doneWith(m *member, round int) {
	switch {
	case m.on != participating || d.phase != Complete || m.done:
	case round < d.round:
		d.act(Action{Kind: Place, ID: m.ID, Placement: m.place})
	default:
		m.done, m.since = true, d.now
		d.done++
		d.because("%s is done", m.ID)
	}
}

// finished says of a node that it was done, and that its round is over: it is not of a later one,
// and hears of the end from the bulletins. "" stands for any node. The oldest of very many are
// forgotten (maxEnded); such a one joins again.
func (d *decision) finished(id string) bool {
	return slices.ContainsFunc(d.ended, func(e ended) bool { return e.end == WasDone && (id == "" || e.id == id) })
}

// stranger tells a node that was lost, or was never there, that it has no place.
func (d *decision) stranger(id string) {
	if d.phase == Closed {
		d.act(d.farewell(id))
		return
	}
	d.act(Action{Kind: Refuse, ID: id, Err: fmt.Errorf("%w: %s has to join again", ErrLost, clip(id))})
}

// fail spends a restart, or ends the job where none is left. A worker that may have given up
// because another was lost is restarted for that one's restart: once, as it is started anew then.
func (d *decision) fail(m *member, e Event) {
	what := fmt.Sprintf("worker %d of %s failed%s", e.Rank, m.ID, colon(e.Why))
	switch {
	case m.on != participating || d.phase != Complete:
		return // its round has ended meanwhile, and the next one starts what must be started
	case e.Nth <= m.fails:
		d.act(Action{Kind: Restart, ID: m.ID, Placement: m.place, Nth: e.Nth, Why: what})
		return
	case e.Round < d.round: // the place that it has got since starts it
		d.act(Action{Kind: Place, ID: m.ID, Placement: m.place})
		return
	case d.cfg.Policy == ReplaceWorker && 0 < e.Since && e.Since <= d.restarts:
		d.replaceWorker(m, e.Nth, what+" (it ran when another failed: the two count once)")
		return
	case d.restarts == d.cfg.MaxRestarts:
		d.close(true, fmt.Sprintf("%s; %s", what, Spent(d.restarts)))
		return
	}
	d.restarts++
	m.fails = e.Nth
	d.note(m.ID, "%s: %s", d.nthRestart(), what) // the end of a long text is cut
	if d.cfg.Policy == RestartGroup {
		d.openRound(d.nthRestart() + ": " + what)
		return
	}
	d.replaceWorker(m, e.Nth, what)
}

func (s *State) nthRestart() string {
	return fmt.Sprintf("restart %d of %d", s.restarts, s.cfg.MaxRestarts)
}

// replaceWorker lets the node restart its nth worker that failed, in its place.
func (d *decision) replaceWorker(m *member, nth int, what string) {
	d.epoch++
	m.fails, m.place.Restarts = nth, d.restarts
	d.because("%s; %s, in its place", what, d.nthRestart())
	d.act(Action{Kind: Restart, ID: m.ID, Placement: m.place, Nth: nth, Why: what})
}

// Spent says for people that so many restarts, or none, were allowed.
func Spent(restarts int) string {
	switch restarts {
	case 0:
		return "no restarts are allowed"
	case 1:
		return "the only restart is spent"
	}
	return fmt.Sprintf("all %d restarts are spent", restarts)
}

// expire removes who is silent, and who has waited too long.
func (d *decision) expire() {
	if d.phase == Closed || d.now.Before(d.quiet) {
		return
	}
	var gone []*member
	d.quiet = d.now.Add(min(d.cfg.Silence, d.cfg.JoinTimeout))
	for _, m := range d.members {
		if m.done {
			continue
		}
		silent := d.now.Sub(m.lastSeen) > d.cfg.Silence
		late := !m.expires.IsZero() && d.now.After(m.expires)
		if silent || late {
			gone = append(gone, m)
		} else {
			d.watchOver(m)
		}
	}
	slices.SortFunc(gone, func(a, b *member) int { return cmp.Compare(a.order, b.order) })
	for _, m := range gone {
		if d.phase == Closed {
			return
		}
		if d.now.Sub(m.lastSeen) > d.cfg.Silence {
			silent := fmt.Sprintf("no word from it for %v", d.cfg.Silence)
			d.lose(m, WasLost, silent, "is lost: "+silent)
			continue
		}
		err := fmt.Errorf("%w: after %v there are %d of the %d nodes that are needed", ErrTimeout, d.cfg.JoinTimeout, d.counts[participating], d.cfg.Min)
		if m.on == waiting {
			err = fmt.Errorf("%w: for %v no round has begun after the one that runs", ErrTimeout, d.cfg.JoinTimeout)
		}
		d.act(Action{Kind: Refuse, ID: m.ID, Err: err})
		d.lose(m, GaveUp, fmt.Sprintf("no round for %v", d.cfg.JoinTimeout), "gives up waiting")
	}
}

// despair gives a round up that has had too few nodes for too long, or has nobody but nodes of
// earlier rounds that are done and wait for the end.
func (d *decision) despair() {
	switch {
	case d.phase != Gathering:
	case len(d.members) == 0 && d.finished(""):
		d.close(true, d.tooFewLeft())
	case !d.tooFew.IsZero() && d.now.After(d.tooFew):
		d.close(true, fmt.Sprintf("for %v there have been only %d of the %d nodes that are needed", d.cfg.JoinTimeout, d.counts[participating], d.cfg.Min))
	}
}

// lose removes a node that is not done; if it took part in a round that was complete, the next one
// begins.
func (d *decision) lose(m *member, how End, cause, why string) {
	on := m.on
	d.remove(m)
	d.part(m, how, cause)
	d.act(Action{Kind: Lost, ID: m.ID, Why: why})
	d.note(m.ID, "node %s %s", m.ID, why)
	d.because("%s %s", m.ID, why)
	if on == participating && d.phase == Complete {
		d.openRound("")
	}
}

// openRound opens the next round. Who takes part already stays, unless it is done.
func (d *decision) openRound(why string) {
	if why != "" {
		d.because("%s", why)
	}
	finished := false
	for _, m := range d.sorted(participating) {
		if m.done {
			finished = true
			d.remove(m)
			d.part(m, WasDone, "")
			d.note(m.ID, "node %s is done", m.ID)
			d.act(Action{Kind: Lost, ID: m.ID, Why: "is done"})
		}
	}
	if left := len(d.members); finished && left < d.cfg.Min {
		d.close(true, d.tooFewLeft())
		return
	}
	d.round = max(d.round+1, d.past.Rounds)
	d.phase, d.deadline, d.since = Gathering, time.Time{}, d.now
	d.await()
}

func (s *State) tooFewLeft() string {
	return fmt.Sprintf("only %d of the %d nodes that are needed are left and not done", len(s.members), s.cfg.Min)
}

// await marks those of a new round that have not been heard of for longer than who lives is silent:
// it would be of no use with a dead node in it. Those that died at the same time as one that is
// lost are all among them, and are lost within a third of Silence.
func (d *decision) await() {
	for _, m := range d.members {
		late := d.cfg.Settle > 0 && m.on == participating && d.now.Sub(m.lastSeen) > d.cfg.Silence*2/3
		if late && !m.awaited {
			d.awaited++
		} else if !late && m.awaited {
			d.awaited--
		}
		m.awaited = late
	}
}

// linger keeps a later round open for whoever comes next: many who come one after another shall
// come in together, but wait for no longer than it takes to notice that one is gone.
func (d *decision) linger() {
	if d.deadline.IsZero() || d.cfg.Settle < 0 || d.round == 0 && d.phase == Gathering {
		return
	}
	t := d.now.Add(d.cfg.Settle)
	if t.After(d.latest) {
		t = d.latest
	}
	if t.After(d.deadline) {
		d.deadline = t
	}
}

// form moves on what is due: it lets nodes in where there is room, completes a round, and begins
// the next.
func (d *decision) form() {
	if d.phase == Complete {
		d.relieve()
	}
	if d.phase == Gathering {
		d.gather()
	}
}

// relieve looks after a complete round: is it over, and should it give way to one with those who
// wait?
func (d *decision) relieve() {
	if d.done > 0 && d.done == d.counts[participating] {
		d.close(false, "every node is done")
		return
	}
	if d.finishing() {
		d.deadline = time.Time{}
		return
	}
	d.admit(redundant, waiting, d.cfg.Max-d.counts[participating]-d.counts[waiting])
	switch {
	case d.counts[waiting] == 0:
		d.deadline = time.Time{}
	case d.deadline.IsZero():
		d.deadline, d.latest = d.now.Add(max(d.cfg.Settle, 0)), d.now.Add(d.cfg.Silence/3)
	}
	if !d.deadline.IsZero() && !d.now.Before(d.deadline) {
		d.openRound(fmt.Sprintf("%d nodes wait", d.counts[waiting]))
		d.admit(waiting, participating, d.cfg.Max-d.counts[participating])
		d.complete()
	}
}

// gather looks after a round that is gathering: does it have enough?
func (d *decision) gather() {
	d.admit(waiting, participating, d.cfg.Max-d.counts[participating])
	d.admit(redundant, participating, d.cfg.Max-d.counts[participating])
	n, settle := d.counts[participating], d.cfg.LastCall
	if d.round > 0 {
		settle = d.cfg.Settle
	}
	switch {
	case n < d.cfg.Min:
		d.deadline = time.Time{}
		if d.tooFew.IsZero() && d.round > 0 && n > 0 {
			d.tooFew = d.now.Add(d.cfg.JoinTimeout)
		}
		return
	case d.deadline.IsZero():
		d.deadline, d.tooFew = d.now.Add(max(settle, 0)), time.Time{}
		d.latest = d.now.Add(d.cfg.Silence / 3)
		d.because("%d of %d nodes are there: last call", n, d.cfg.Max)
	}
	if d.awaited == 0 && (n == d.cfg.Max || !d.now.Before(d.deadline)) {
		d.complete()
	}
}

// admit moves up to n nodes from one list to another, in the order of their arrival.
func (d *decision) admit(from, to list, n int) {
	if n <= 0 || d.counts[from] == 0 {
		return
	}
	for i, m := range d.sorted(from) {
		if i == n {
			break
		}
		if from == redundant {
			m.expires = d.now.Add(d.cfg.JoinTimeout)
			d.watchOver(m)
		}
		d.count(m, to)
		m.since = d.now
		d.looks++
	}
}

// complete gives everybody in the round its place.
func (d *decision) complete() {
	d.phase, d.deadline, d.tooFew, d.since, d.formed = Complete, time.Time{}, time.Time{}, d.now, true
	d.epoch = max(d.epoch, d.past.Epoch) + 1
	placed, why := d.assign(), strings.Join(d.whys, "; ")
	d.whys = nil
	for _, m := range placed {
		m.expires = time.Time{}
		d.act(Action{Kind: Place, ID: m.ID, Placement: m.place, Why: why})
	}
	d.because("round %d is complete with %d nodes", d.round, len(placed))
}

// close ends the rendezvous for all.
func (d *decision) close(failed bool, why string) {
	d.phase, d.failed, d.outcome, d.since = Closed, failed, why, d.now
	d.deadline, d.tooFew = time.Time{}, time.Time{}
	d.epoch++
	d.because("closed: %s", why)
	for _, l := range []list{participating, waiting, redundant} {
		for _, m := range d.sorted(l) {
			d.act(d.farewell(m.ID))
		}
	}
}

// farewell is what a node is told once the rendezvous is closed. For one that was redundant that is
// no failure, and one that was done before the last round is none that comes too late.
func (d *decision) farewell(id string) Action {
	a := Action{Kind: Finished, ID: id, Why: d.outcome, Placement: Placement{Restarts: d.restarts}}
	m := d.members[id]
	if m == nil && !d.finished(id) {
		a.Kind = Refuse
	}
	if a.Kind == Refuse || d.failed && (m == nil || m.on != redundant) {
		a.Err = fmt.Errorf("%w: %s", ErrClosed, d.outcome)
	}
	return a
}

// finishing says that some of a complete round are done: nobody new comes in any more unless
// somebody is lost.
func (s *State) finishing() bool { return s.phase == Complete && s.done > 0 }

// forgive takes it that nobody could be heard until now.
func (s *State) forgive(now time.Time) {
	for _, m := range s.members {
		m.lastSeen, m.awaited = now, false
	}
	s.awaited = 0
}

// noteLate notes whose word is overdue, for those who look. Of all others it need not be shown when
// they were heard, which changes all the time.
func (s *State) noteLate(now time.Time) {
	for _, m := range s.members {
		if late := !m.done && now.Sub(m.lastSeen) > s.cfg.Late(); late != m.late {
			m.late = late
			s.looks++
		}
	}
}

// Late is how long a node that lives may be silent: it says a word three times in Silence.
func (cfg Config) Late() time.Duration { return cfg.Silence / 2 }

// silentFor is since when a late member was heard of, else 0.
func (m *member) silentFor(now time.Time) time.Duration {
	if !m.late {
		return 0
	}
	return max(now.Sub(m.lastSeen), 1)
}

// watchOver notes when a member may have to be removed.
func (s *State) watchOver(m *member) {
	if t := m.lastSeen.Add(s.cfg.Silence + 1); t.Before(s.quiet) {
		s.quiet = t
	}
	if t := m.expires.Add(1); !m.expires.IsZero() && t.Before(s.quiet) {
		s.quiet = t
	}
}

// enrol makes a node a member, on no list yet.
func (s *State) enrol(m *member) {
	s.members[m.ID] = m
	if m.Want != 0 {
		s.wants[m.Want] = m
	}
	s.watchOver(m)
}

// count puts a member on a list.
func (s *State) count(m *member, on list) {
	if m.counted {
		s.counts[m.on]--
	}
	m.on, m.counted = on, true
	s.counts[on]++
}

func (s *State) remove(m *member) {
	s.counts[m.on]--
	delete(s.members, m.ID)
	delete(s.wants, m.Want)
	if m.awaited {
		s.awaited--
	}
	if m.done {
		s.done--
	}
}

// sorted is a list in the order of arrival.
func (s *State) sorted(on list) []*member {
	var out []*member
	for _, m := range s.members {
		if m.on == on {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *member) int { return cmp.Compare(a.order, b.order) })
	return out
}

func (l list) String() string {
	return [...]string{"participating", "waiting", "redundant"}[l]
}

func colon(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
