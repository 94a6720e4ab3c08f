package rdzv

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"time"
)

// opKind is what a peer wants done with the store.
type opKind int

const (
	opRead   opKind = iota // the value of a key now; its result is given to Peer.result
	opSwap                 // compare and set; its result is given to Peer.result
	opSet                  // no result
	opDelete               // no result
	opPush                 // to a queue; no result
)

// op is one thing to do with the store. A peer's ops are done in their order, one after another.
type op struct {
	kind     opKind
	key      string
	old, new []byte // swap; new: set, push
}

// role is what a peer is in the protocol.
type role int

const (
	following role = iota
	electing       // it has asked who leads, or for the lead
	leading
)

// peer is one node's part in the protocol as a state machine: what it reads from the store and the
// time go in, what is to be done with the store and what the node is to know come out. It does one
// thing at a time: while busy, it is to be given results only.
//
// A leader writes a state before it says in the lease that this is the one that counts, and tells
// nobody before that was done. So whoever leads next begins with all that anybody was told. It
// forgets what nobody was told: those who still wait for an answer ask again when they hear of a
// new leader.
type peer struct {
	node Node
	cfg  Config

	role  role
	lease lease  // as last read or written
	raw   []byte // the same, in bytes
	busy  bool   // a result is awaited

	// As a node.
	intent   Event     // what it tells every new leader: that it joins, has failed, or is done
	known    int       // the term of the leader that was told
	life     uint64    // of the rendezvous that it takes part in, 0 before it has found one
	past     Past      // of the one before, until it has a place in this one
	founds   uint64    // the life of the next one that it begins
	place    Placement // the last
	highest  int       // epoch that it has heard of
	epoch    int       // of the news it has had
	heard    time.Time // when the bulletin last changed
	beat     bulletin
	beatAt   time.Time   // when that came
	nextBeat time.Time   // when it tells that it lives
	round    int         // of its place
	standing *ActionKind // Place, Wait or Spare, as it was told last
	over     bool        // it has left, was refused, or all is closed
	news     []Action    // for the node, in their order
	changes  []Change    // for people, in their order
	whys     []Change    // the same, since its last place
	counter  int         // the term in which changes are counted, 0 before the first bulletin
	counted  int         // the last of them that was heard of

	// As a leader.
	state     *State
	before    string   // key of the state that the last one has replaced
	saved     int      // told() of the state that was written last
	savedDone int      // and how many were done
	pending   []Action // to be told when it is written
	bulletins int
	shown     int       // State.looks that was shown last
	showDue   time.Time // before that it is not shown again
	due       time.Time // of the next bulletin

	reasons []string // for the log
	alarms  []string // for people: what was not understood
}

func newPeer(node Node, cfg Config, now time.Time) *peer {
	p := &peer{node: node, cfg: cfg, heard: now, nextBeat: now.Add(cfg.Silence / 3), round: -1, founds: lifeOf(node.ID)}
	p.intent = p.join()
	return p
}

func (p *peer) join() Event { return Event{Kind: Join, Node: p.node, Config: p.cfg, Past: p.past} }

// lifeOf is a number for the first rendezvous that a node begins; the next ones follow it. No two
// nodes have the same name.
func lifeOf(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64() | 1<<63
}

// enter takes it that the rendezvous is the one with this life, 0 if there is none. Where that is
// another than before, the store has lost all that this one knew, and the node joins it as it would
// any other; what its workers run it keeps.
func (p *peer) enter(life uint64, now time.Time) {
	if p.life != 0 && p.life != life {
		p.reasons = append(p.reasons, "the store has lost the rendezvous, and there is another")
		p.past = Past{Rounds: max(p.past.Rounds, p.round+1), Epoch: max(p.past.Epoch, p.highest), Rank: p.place.Rank, Restarts: max(p.past.Restarts, p.place.Restarts, p.beat.Summary.Restarts)}
		p.lease, p.raw, p.known, p.beat, p.heard, p.counter = lease{}, nil, 0, bulletin{}, now, 0
		if p.intent.Kind == Join {
			p.intent = p.join()
		}
	}
	p.life = life
}

// doubt looks whether the rendezvous is still the one that it was: somebody speaks of another. A
// leader leads on if it is.
func (p *peer) doubt() []op {
	if p.role != leading {
		return p.elect()
	}
	p.busy = true
	return []op{{kind: opRead, key: keyLeader}}
}

// start begins: who leads?
func (p *peer) start() []op { return p.elect() }

func (p *peer) elect() []op {
	p.role, p.busy, p.state, p.pending = electing, true, nil, nil
	return []op{{kind: opRead, key: keyLeader}}
}

// result takes what came of a read or a swap: the value that is there, nil where there is none.
func (p *peer) result(o op, value []byte, now time.Time) (ops []op, err error) {
	p.busy = false
	switch {
	case o.kind == opRead && o.key == keyLeader:
		return p.seeLease(value, now)
	case o.kind == opRead:
		return p.takeState(value, now)
	case p.role == leading:
		return p.committed(string(value) == string(o.new), now), nil
	case p.role == following: // it has resigned
		return nil, nil
	case string(value) == string(o.new):
		return p.elected(now)
	case value == nil || string(value) == string(o.old): // it is there no more: what a store answers then is its own affair
		return p.elect(), nil
	}
	return p.follow(value, now)
}

// seeLease decides whether to follow or to lead.
func (p *peer) seeLease(value []byte, now time.Time) ([]op, error) {
	if p.role == leading {
		if string(value) == string(p.raw) {
			return nil, nil
		}
		p.elect()
		p.busy = false
	}
	if value == nil {
		p.enter(0, now)
		p.founds++
		return p.campaign(lease{V: version, Term: 1, Life: p.founds}, nil), nil
	}
	l, err := readLease(value)
	if err != nil {
		return nil, err
	}
	if l.Leader == p.node.ID {
		return nil, fmt.Errorf("%w: state %d.%d is gone", ErrCorrupt, l.From, l.Seq)
	}
	p.enter(l.Life, now)
	if l.Leader != "" && (l.Term != p.lease.Term || now.Sub(p.heard) <= p.patience()) {
		return p.follow(value, now)
	}
	l.Term++
	return p.campaign(l, value), nil
}

// campaign stands for election.
func (p *peer) campaign(l lease, old []byte) []op {
	l.Leader = p.node.ID
	p.lease, p.raw, p.busy = l, pack(l), true
	return []op{{kind: opSwap, key: keyLeader, old: old, new: p.raw}}
}

// follow takes somebody else's lead, and tells that one what it wants.
func (p *peer) follow(value []byte, now time.Time) ([]op, error) {
	l, err := readLease(value)
	if err != nil {
		return nil, err
	}
	p.enter(l.Life, now)
	p.role, p.lease, p.raw, p.heard, p.state = following, l, value, now, nil
	return p.petition(), nil
}

// petition tells a leader that has not heard it what the node wants.
func (p *peer) petition() []op {
	if p.over || p.known >= p.lease.Term {
		return nil
	}
	p.known = p.lease.Term
	return []op{p.say(p.intent)}
}

// say tells the leader. Texts come from the workers, and whoever cannot read one cannot read the
// message.
func (p *peer) say(e Event) op {
	e.ID, e.Why = p.node.ID, cut(e.Why)
	return op{kind: opPush, key: keyInbox, new: pack(message{V: version, Event: e})}
}

// elected begins to lead: with the last state that counts, if there is one.
func (p *peer) elected(now time.Time) ([]op, error) {
	p.role = leading
	p.enter(p.lease.Life, now)
	if p.lease.Seq > 0 {
		p.busy = true
		return []op{{kind: opRead, key: p.lease.keyState()}}, nil
	}
	s, err := NewState(p.cfg)
	if err != nil {
		return nil, err
	}
	return p.lead(s, now), nil
}

// takeState goes on where another leader ended. A state that is gone was replaced by one who has
// taken over meanwhile.
func (p *peer) takeState(value []byte, now time.Time) ([]op, error) {
	if value == nil {
		return p.elect(), nil
	}
	s, err := decode(value, now)
	if err != nil {
		return nil, fmt.Errorf("state %d.%d: %w", p.lease.From, p.lease.Seq, err)
	}
	if s.cfg != p.cfg {
		return nil, s.cfg.differs(p.cfg)
	}
	s.forgive(now)
	if p.beat.Term > 0 { // the state is of its last commit, which may be long ago
		s.elapse(p.beat.Age + now.Sub(p.beatAt) - s.age(now))
	}
	return p.lead(s, now), nil
}

func (p *peer) lead(s *State, now time.Time) []op {
	p.state, p.saved, p.savedDone, p.pending, p.bulletins, p.shown, p.showDue = s, s.told(), s.done, nil, 0, -1, now
	return append(p.petition(), p.publish(now)...)
}

// told grows with everything that must not be forgotten once somebody knows of it.
func (s *State) told() int { return s.epoch + s.restarts + int(s.phase) }

// inbox takes messages to the leader, all that there are at this moment.
func (p *peer) inbox(raw [][]byte, now time.Time) []op {
	if p.role != leading { // it was while they were taken; whoever is now shall have them
		var back []op
		for _, b := range raw {
			back = append(back, op{kind: opPush, key: keyInbox, new: b})
		}
		return back
	}
	for _, b := range raw {
		e, err := readMessage(b)
		if err != nil {
			p.ignore("a message", err)
			continue
		}
		p.decide(e, now)
	}
	return p.commit(now)
}

// ignore is of what cannot be read: whoever has said it waits for an answer, so people should know.
func (p *peer) ignore(what string, err error) {
	p.alarms = append(p.alarms, what+" that cannot be read is ignored: "+err.Error())
}

func (p *peer) decide(e Event, now time.Time) {
	actions, why := p.state.Decide(e, now)
	p.pending = append(p.pending, actions...)
	if why != "" {
		p.reasons = append(p.reasons, why)
	}
}

// commit writes the state if it has something in it that somebody is about to be told, and then
// tells. Who is done is told nothing and says it again to whoever leads, so that is written no more
// often than a bulletin: many writes of all of N nodes would be O(N²) bytes.
func (p *peer) commit(now time.Time) []op {
	if p.state.told() == p.saved && (p.state.done == p.savedDone || now.Before(p.due)) {
		return p.answers(now)
	}
	blob, err := p.state.encode(now)
	if err != nil {
		p.reasons = append(p.reasons, err.Error())
		return nil
	}
	next := p.lease
	p.before = next.keyState()
	next.Seq, next.From = next.Seq+1, next.Term
	old := p.raw
	p.lease, p.raw, p.busy = next, pack(next), true
	return []op{
		{kind: opSet, key: next.keyState(), new: blob},
		{kind: opSwap, key: keyLeader, old: old, new: p.raw},
	}
}

// committed goes on after the lease was to be moved to a new state. Where that failed somebody else
// leads.
func (p *peer) committed(ok bool, now time.Time) []op {
	if !ok {
		return p.elect()
	}
	p.saved, p.savedDone, p.due = p.state.told(), p.state.done, now
	return append(p.answers(now), op{kind: opDelete, key: p.before})
}

// answers sends every node its answers.
func (p *peer) answers(now time.Time) []op {
	var ops []op
	for _, a := range p.pending {
		if a.Kind != Lost {
			ops = append(ops, op{kind: opPush, key: keyTo(a.ID), new: pack(newAnswer(p.lease, a))})
		}
	}
	p.pending = nil
	if !now.Before(p.due) {
		ops = append(ops, p.publish(now)...)
	}
	return ops
}

// publish tells all how things stand, and that the leader lives.
func (p *peer) publish(now time.Time) []op {
	p.bulletins++
	p.due = now.Add(p.cfg.Silence / 6)
	b := bulletin{V: version, Term: p.lease.Term, Beat: p.bulletins, Age: p.state.age(now), Summary: p.state.Summary(), Life: p.lease.Life, Changes: p.state.recent(now)}
	b.Summary.Outcome = cut(b.Summary.Outcome)
	return append(p.show(now), op{kind: opSet, key: keySummary, new: pack(b)})
}

// show has others see the state, if it looks otherwise than before: at most once in a beat, so that
// many changes cost no more than one.
func (p *peer) show(now time.Time) []op {
	p.state.noteLate(now)
	early := now.Before(p.showDue) && p.state.phase != Closed
	if p.shown == p.state.looks || early || p.state.looks == 0 {
		return nil
	}
	p.shown, p.showDue = p.state.looks, now.Add(p.cfg.Silence/6)
	blob, err := p.state.encode(now)
	if err != nil || len(blob) > maxShown {
		return []op{{kind: opDelete, key: keyShown}}
	}
	return []op{{kind: opSet, key: keyShown, new: pack(shown{V: version, Term: p.lease.Term, Beat: p.bulletins, State: blob})}}
}

// answered takes an answer to this node.
func (p *peer) answered(raw []byte, now time.Time) []op {
	a, err := readAnswer(raw)
	if err != nil {
		p.ignore("an answer", err)
		return nil
	}
	act := a.action(p.node.ID)
	switch {
	case p.over:
		return nil
	case a.Life != p.life: // it is told again when it has joined there
		return p.doubt()
	case (a.Kind == Place || a.Kind == Restart) && !p.fits(a.Placement):
		p.ignore("an answer", impossible("place of "+p.node.ID, a.Placement))
		return nil
	case a.Kind == Place && a.Placement.Round <= p.round:
		return nil // it knows
	case a.Kind == Wait || a.Kind == Spare:
		p.standing = &act.Kind
	case a.Kind == Place:
		act.Why = cmp.Or(act.Why, p.why())
		p.round, p.place, p.standing, p.past = a.Placement.Round, a.Placement, &act.Kind, Past{}
		p.highest = max(p.highest, a.Placement.Epoch)
		if p.intent.Kind != Leave && p.intent.Kind != Close { // what has ended the node starts when it hears of the place
			p.intent = p.join()
		}
	case a.Kind == Refuse && errors.Is(act.Err, ErrLost) && p.intent.Kind != Leave:
		if p.intent.Kind != Done && p.intent.Kind != Close {
			p.intent = p.join()
		}
		return []op{p.say(p.join())}
	case a.Kind == Refuse || a.Kind == Finished:
		p.over = true
	case a.Kind == Restart && p.intent.Kind == Fail && act.Nth >= p.intent.Nth:
		p.intent = p.join()
	}
	p.news = append(p.news, act)
	return nil
}

// fits says whether a place can be this node's: it is of what the node brought, and within what all
// nodes agreed on.
func (p *peer) fits(at Placement) bool {
	return at.Slots == p.node.Slots && at.Nodes <= p.cfg.Max && at.MaxRestarts == p.cfg.MaxRestarts && at.Restarts >= 0 && at.Restarts <= at.MaxRestarts &&
		(at.Rank != 0 || at.MasterAddr == p.node.Addr)
}

// saw takes the bulletin, whenever it changes.
func (p *peer) saw(raw []byte, now time.Time) []op {
	b, err := readBulletin(raw)
	if err != nil {
		p.ignore("a bulletin", err)
		return nil
	}
	if b.Life != p.life {
		return p.doubt()
	}
	if b.Term < p.lease.Term || b.Term == p.beat.Term && b.Beat <= p.beat.Beat {
		return nil // one that was overtaken
	}
	p.applyBulletin(b)
	p.beat, p.heard, p.beatAt = b, now, now
	p.highest = max(p.highest, b.Summary.Epoch)
	if b.Summary.Phase == Closed && !p.over {
		p.over = true
		p.news = append(p.news, p.farewell(b.Summary))
	}
	if b.Term != p.lease.Term || b.Vacant { // a leader that hears of another leads no more
		return p.elect()
	}
	return nil
}

// farewell is what the leader would tell this node of the end: see decision.farewell.
func (p *peer) farewell(sum Summary) Action {
	a := Action{Kind: Finished, ID: p.node.ID, Why: sum.Outcome, Placement: Placement{Restarts: sum.Restarts}}
	if p.standing == nil {
		a.Kind = Refuse
	}
	if p.standing == nil || sum.Failed && *p.standing != Spare {
		a.Err = told{fmt.Sprintf("%v: %s", ErrClosed, sum.Outcome), ErrClosed}
	}
	return a
}

// patience is how long a leader may be silent.
func (p *peer) patience() time.Duration { return p.cfg.Silence / 2 }

// tick takes the passing of time.
func (p *peer) tick(now time.Time) []op {
	if p.role == leading {
		p.decide(Event{Kind: Tick}, now)
		ops := p.commit(now)
		if p.busy {
			return ops
		}
		return append(ops, p.live(now)...)
	}
	if p.role == following && !p.over && now.Sub(p.heard) > p.patience() {
		return p.elect()
	}
	return p.live(now)
}

// live tells the leader that this node lives.
func (p *peer) live(now time.Time) []op {
	if p.over || now.Before(p.nextBeat) {
		return nil
	}
	p.nextBeat = now.Add(p.cfg.Silence / 3)
	if p.intent.Kind == Join && p.round >= 0 && p.round == p.beat.Summary.Round {
		return []op{p.say(Event{Kind: KeepAlive})}
	}
	return []op{p.say(p.intent)} // it may have been lost, or the answer
}

// nextTick is when it wants a tick; zero if never.
func (p *peer) nextTick() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if !p.over {
		sooner(p.nextBeat)
	}
	switch {
	case p.role == leading:
		sooner(p.state.next())
		sooner(p.due)
	case p.role == following && !p.over:
		sooner(p.heard.Add(p.patience() + 1))
	}
	return next
}

// forgive takes it that the store could not be reached until now: nobody can be blamed for having
// been silent.
func (p *peer) forgive(now time.Time) {
	p.heard = now
	if p.state != nil {
		p.state.forgive(now)
	}
}

// want tells the leader what the node wants now, and every later leader.
func (p *peer) want(e Event) []op {
	if p.over || (e.Kind == Fail || e.Kind == Done) && e.Round < p.round { // the place that it is about to get starts the worker
		return nil
	}
	p.intent, p.known = e, p.lease.Term
	p.over = e.Kind == Leave
	return []op{p.say(e)}
}

// quit leaves. A leader leaves as everybody does, and has the next one begin with a state in which
// it has left.
func (p *peer) quit(why string, now time.Time) []op {
	leave := Event{Kind: Leave, ID: p.node.ID, Why: why}
	if p.role != leading {
		return p.want(leave)
	}
	if !p.over {
		p.decide(leave, now)
	}
	p.over = true
	blob, err := p.state.encode(now)
	if err != nil {
		p.reasons = append(p.reasons, err.Error())
		return nil
	}
	old := p.raw
	p.lease.Leader, p.lease.Seq, p.lease.From = "", p.lease.Seq+1, p.lease.Term
	p.raw = pack(p.lease)
	vacant := bulletin{V: version, Term: p.lease.Term, Beat: p.bulletins + 1, Vacant: true, Age: p.state.age(now), Summary: p.state.Summary(), Life: p.lease.Life, Changes: p.state.recent(now)}
	vacant.Summary.Outcome = cut(vacant.Summary.Outcome)
	p.showDue = now
	last := p.show(now)
	p.role, p.state, p.pending, p.busy = following, nil, nil, false // what was not told the next leader will tell
	return append([]op{
		{kind: opSet, key: p.lease.keyState(), new: blob},
		{kind: opSwap, key: keyLeader, old: old, new: p.raw},
	}, append(last, op{kind: opSet, key: keySummary, new: pack(vacant)})...)
}
