package ballot

import (
	"cmp"
	"slices"
)

// Who is one life of a worker. It is part of the wire format.
type Who struct {
	_    struct{} `cbor:",toarray"`
	Name string
	Life uint64
	Rank int // in the job
}

// Roll is who makes up a generation, by rank in the group. It is part of the wire format.
type Roll struct {
	_          struct{} `cbor:",toarray"`
	Generation uint64
	Members    []Who
}

// Has says whether somebody is on the roll.
func (r Roll) Has(who Who) bool { return slices.Contains(r.Members, who) }

// Said is all that one says to the others. A later one, of a higher N, replaces it. It is part of
// the wire format.
type Said struct {
	N     uint64 `cbor:"1,keyasint"`
	Here  bool   `cbor:"2,keyasint,omitempty"` // it waits for the next generation
	Lost  []Who  `cbor:"3,keyasint,omitempty"` // whom it cannot go on with
	New   []Who  `cbor:"4,keyasint,omitempty"` // whom it wants to take in
	Next  *Roll  `cbor:"5,keyasint,omitempty"` // what the store holds
	Ready bool   `cbor:"6,keyasint,omitempty"` // it has founded that
}

// Invites says that a newcomer is wanted, or awaited: it may have given up, and come again.
func (s Said) Invites(who Who) bool { return s.Here && (s.Next == nil || s.Next.Has(who)) }

// Kind of an action.
type Kind uint8

// What a shell is asked to do.
const (
	Say   Kind = iota // send Said to To
	Yield             // wait until a larger part of the group, if there is one, has seen what happened; tell Yielded
	Ask               // propose Roll to the store, and tell Answer or Fail
	Found             // make Roll's group, and tell Founded or Unfounded
)

// Action is something to do.
type Action struct {
	Kind Kind
	To   Who
	Said Said
	Roll Roll
}

// Ballot is one worker's part. Make it with New.
type Ballot struct {
	base     Roll
	me       Who
	mine     Said
	unwanted []Who        // whom the caller named
	gone     map[Who]bool // who was seen to be lost, or has left
	left     map[Who]bool // who has said so itself
	said     map[Who]Said
	yielding bool // a Yield is out
	yielded  bool
	asked    bool
	found    bool
	passed   bool // there is a later generation than the next one
	acts     []Action
}

// New makes the part of one who is on the roll, or of a newcomer. What it says has an N above from:
// a newcomer that has given up may come again, with a part that is new.
func New(base Roll, me Who, from uint64) *Ballot {
	return &Ballot{base: base, me: me, mine: Said{N: from}, gone: map[Who]bool{}, left: map[Who]bool{}, said: map[Who]Said{}}
}

// Actions gives what is to be done since the last call, in order.
func (b *Ballot) Actions() []Action {
	acts := b.acts
	b.acts = nil
	return acts
}

// Begin says that this worker waits for the next generation, without some and with others.
func (b *Ballot) Begin(unwanted, guests []Who) {
	b.unwanted, b.mine.New, b.mine.Here = unwanted, guests, true
	b.change()
}

// Stop says that it waits no more. It may begin again.
func (b *Ballot) Stop() {
	b.mine.Here = false
	b.change()
}

// Lose says that somebody is gone for this worker.
func (b *Ballot) Lose(who Who) {
	if !b.gone[who] {
		b.gone[who] = true
		b.change()
	}
}

// Left says that somebody has said goodbye, and takes part no more.
func (b *Ballot) Left(who Who) {
	b.left[who] = true
	b.Lose(who)
	b.step()
}

// Hear takes what another has said.
func (b *Ballot) Hear(from Who, s Said) {
	if s.N <= b.said[from].N {
		return
	}
	b.said[from] = s
	if s.Next != nil && b.mine.Next == nil && s.Next.Generation == b.base.Generation+1 {
		b.mine.Next = s.Next
		b.change()
		return
	}
	b.step()
}

// Answer is what the store holds.
func (b *Ballot) Answer(now Roll) {
	b.asked = false
	switch {
	case now.Generation > b.base.Generation+1:
		b.passed = true
	case now.Generation == b.base.Generation+1 && b.mine.Next == nil:
		b.mine.Next = &now
		b.change()
	}
}

// Pass says that there is a later generation than the next one.
func (b *Ballot) Pass() { b.passed = true }

// Yielded says that a small part of the group has waited for a larger one.
func (b *Ballot) Yielded() {
	b.yielding, b.yielded = false, true
	b.step()
}

// Fail says that the store has not answered. Whoever begins again asks again.
func (b *Ballot) Fail() { b.asked = false }

// Founded says that the next generation can be reached here.
func (b *Ballot) Founded() {
	b.mine.Ready = true
	b.change()
}

// Unfounded says that the next generation's group could not be made. Whoever begins again tries
// again.
func (b *Ballot) Unfounded() { b.found = false }

// Remind says everything again to newcomers that do not wait: they may not have listened.
func (b *Ballot) Remind() {
	for _, who := range b.guests() {
		if !b.said[who].Here && who != b.me {
			b.acts = append(b.acts, Action{Kind: Say, To: who, Said: b.mine})
		}
	}
}

// change tells everybody, and goes on.
func (b *Ballot) change() {
	b.mine.N++
	b.mine.Lost = nil
	for _, who := range b.People() {
		if b.accuses(who) {
			b.mine.Lost = append(b.mine.Lost, who)
		}
	}
	for _, who := range b.People() {
		b.acts = append(b.acts, Action{Kind: Say, To: who, Said: b.mine})
	}
	b.step()
}

func (b *Ballot) accuses(who Who) bool { return b.gone[who] || slices.Contains(b.unwanted, who) }

// step asks for what is to be done next, while somebody waits for it.
func (b *Ballot) step() {
	next := b.mine.Next
	switch {
	case !b.mine.Here || b.passed:
	case next != nil && next.Has(b.me) && !b.found:
		b.found = true
		b.acts = append(b.acts, Action{Kind: Found, Roll: *next})
	case next == nil && !b.asked && b.base.Has(b.me):
		roll, all := b.proposal()
		switch {
		case !all:
		case b.few(roll) && !b.yielded:
			if !b.yielding {
				b.yielding = true
				b.acts = append(b.acts, Action{Kind: Yield})
			}
		default:
			b.asked = true
			b.acts = append(b.acts, Action{Kind: Ask, Roll: roll})
		}
	}
}

// few says that a roll has less than half of the members that have not left.
func (b *Ballot) few(roll Roll) bool {
	more := 0 // others than on the roll
	for _, who := range b.base.Members {
		switch {
		case roll.Has(who):
			more--
		case !b.left[who]:
			more++
		}
	}
	return more > 0
}

// sayings is what everybody has said, this worker too.
func (b *Ballot) sayings(who Who) Said {
	if who == b.me {
		return b.mine
	}
	return b.said[who]
}

// guests are the newcomers that somebody wants who waits, by rank in the job.
func (b *Ballot) guests() (all []Who) {
	for _, m := range b.base.Members {
		if s := b.sayings(m); s.Here {
			for _, who := range s.New {
				if !b.base.Has(who) && !slices.Contains(all, who) {
					all = append(all, who)
				}
			}
		}
	}
	slices.SortFunc(all, func(x, y Who) int { return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.Life, y.Life)) })
	return all
}

// People are all but this worker whose loss matters, and who are told.
func (b *Ballot) People() (all []Who) {
	lists := [][]Who{b.base.Members, b.guests()}
	if b.mine.Next != nil {
		lists = append(lists, b.mine.Next.Members)
	}
	for _, who := range slices.Concat(lists...) {
		if who != b.me && !slices.Contains(all, who) {
			all = append(all, who)
		}
	}
	return all
}

// proposal is who goes on, as far as this worker knows, and whether all of them have come.
func (b *Ballot) proposal() (roll Roll, all bool) {
	stay := slices.Concat(b.base.Members, b.guests())
	stay = slices.DeleteFunc(stay, func(who Who) bool { return who != b.me && b.accuses(who) })
	for {
		i := b.blamed(stay)
		if i < 0 {
			break
		}
		stay = slices.Delete(stay, i, i+1)
	}
	all = slices.Contains(stay, b.me)
	for _, who := range stay {
		all = all && b.sayings(who).Here
	}
	return Roll{Generation: b.base.Generation + 1, Members: stay}, all
}

// blamed is the one of the list that goes next: the last of those that most others cannot go on
// with. It is -1 where all can.
func (b *Ballot) blamed(list []Who) int {
	blame := make([]int, len(list))
	for i, from := range list {
		for _, who := range b.sayings(from).Lost {
			j := slices.Index(list, who)
			if j >= 0 && b.base.Has(who) && !b.base.Has(from) {
				j = i
			}
			if j >= 0 {
				blame[j]++
			}
		}
	}
	most := -1
	for i, n := range blame {
		if n > 0 && (most < 0 || n >= blame[most]) {
			most = i
		}
	}
	return most
}

// HasLeft says whether somebody has said goodbye. The store may hold it even so.
func (b *Ballot) HasLeft(who Who) bool { return b.left[who] }

// Next is what the store holds, as soon as that is known.
func (b *Ballot) Next() *Roll { return b.mine.Next }

// Out says that the group goes on without this worker. A newcomer is out, too, when no member is
// left that could take it in.
func (b *Ballot) Out() bool {
	if b.passed || b.mine.Next != nil {
		return b.passed || !b.mine.Next.Has(b.me)
	}
	return !b.base.Has(b.me) && !slices.ContainsFunc(b.base.Members, func(m Who) bool { return !b.gone[m] })
}

// Done says that everybody of the next generation has founded it, or is lost.
func (b *Ballot) Done() bool {
	return b.mine.Next != nil && b.mine.Next.Has(b.me) && len(b.Awaited()) == 0
}

// Awaited are those that have not come, or have not founded what the store holds. Who is to be left
// out waits for all that go on.
func (b *Ballot) Awaited() (all []Who) {
	if b.mine.Next == nil {
		roll, _ := b.proposal()
		return slices.DeleteFunc(roll.Members, func(who Who) bool { return roll.Has(b.me) && b.sayings(who).Here })
	}
	for _, who := range b.mine.Next.Members {
		if !b.sayings(who).Ready && !b.accuses(who) {
			all = append(all, who)
		}
	}
	return all
}

// Missing are those of the awaited that have said nothing, or, where all have, all of them: some
// have given up.
func (b *Ballot) Missing() []Who {
	all := slices.DeleteFunc(b.Awaited(), func(who Who) bool { return who == b.me })
	silent := slices.DeleteFunc(slices.Clone(all), func(who Who) bool { return b.said[who].N > 0 })
	if len(silent) > 0 {
		return silent
	}
	return all
}
