package ledger

import (
	"errors"
	"fmt"
	"slices"
)

// What can keep members from going on together.
var (
	// ErrNoState: nobody that is left has the state.
	ErrNoState = errors.New("no member has the state any more")
	// ErrDiffer: members have different states of one step, or another number of rows.
	ErrDiffer = errors.New("members differ")
)

// DifferError says which ranks differ, and in what.
type DifferError struct {
	Ranks []int
	What  string
}

func (e *DifferError) Error() string {
	return fmt.Sprintf("%v: ranks %v: %s", ErrDiffer, e.Ranks, e.What)
}

// Unwrap gives ErrDiffer.
func (e *DifferError) Unwrap() error { return ErrDiffer }

// Transfer is a sum that one rank has and others lack.
type Transfer struct{ Bucket, Root int }

// Plan is what the members do next, in this order.
type Plan struct {
	Step    uint64 // that is under way when Before is done
	Try     uint64
	Batch   int
	Era     string // empty: there was none
	Roles   []Role // by rank
	Void    []bool // by rank: what it has made of the step does not count
	Base    []bool // by rank: it begins anew with the state before Step, which those who are ready keep for it
	Before  []Transfer
	Spread  []Transfer
	Reduce  []int    // buckets whose sums are made anew
	Compute [][]Span // by rank: the rows that it adds to its contributions
}

// Decide makes the plan of members whose statuses are given by rank.
func Decide(all []Status, buckets int) (Plan, error) {
	ref := -1
	for rank, s := range all {
		if s.Role == Ready && (ref < 0 || s.Step > all[ref].Step) {
			ref = rank
		}
	}
	if ref < 0 {
		return Plan{}, ErrNoState
	}
	d := decision{all: all, ref: all[ref], root: ref, buckets: buckets}
	d.Plan = Plan{Step: d.ref.Step, Batch: d.ref.Batch, Era: d.ref.Era, Roles: make([]Role, len(all)), Void: make([]bool, len(all)), Base: make([]bool, len(all))}
	if err := d.sort(); err != nil {
		return Plan{}, err
	}
	if err := d.rows(); err != nil {
		return Plan{}, err
	}
	d.before()
	d.sums()
	return d.Plan, d.compute()
}

// decision is a plan while it is made.
type decision struct {
	Plan
	all     []Status
	ref     Status // the first of those that have come furthest
	root    int    // its rank
	buckets int
}

// follows says whether what a member has belongs to what ref has.
func (d *decision) follows(s Status) bool {
	return s.Era != "" && s.Era == d.ref.Era && (s.Step == d.ref.Step || s.Step+1 == d.ref.Step && d.ref.Last)
}

// sort gives each member its role.
func (d *decision) sort() error {
	for _, s := range d.all {
		if s.Role == Ready && s.Step == d.Step && s.Era == d.ref.Era {
			d.Try = max(d.Try, s.Try)
		}
	}
	d.Try = max(d.Try, d.ref.Try)
	var differ []int
	for rank, s := range d.all {
		same := s.Step == d.Step && s.Digest != "" && s.Digest == d.ref.Digest
		if s.Digest != "" && d.ref.Digest != "" && s.Step == d.Step && s.Era != "" && s.Era == d.ref.Era && (s.Role == Ready || s.Claims) && !same {
			differ = append(differ, rank)
		}
		switch {
		case s.Role == Ready && (rank == d.root || d.follows(s)), s.Role == Catching && s.Claims && same && d.follows(s):
			d.Roles[rank] = Ready
		case s.Role == Ready && same:
			d.Roles[rank], d.Void[rank] = Ready, true
		case s.Role == Catching && d.follows(s) && (s.Loaded || d.kept(s.Base)):
			d.Roles[rank] = Catching
		default:
			d.Roles[rank], d.Base[rank], d.Void[rank] = Catching, true, true
		}
		d.Void[rank] = d.Void[rank] || s.Step == d.Step && s.Try != d.Try
	}
	if len(differ) > 0 {
		return &DifferError{append([]int{d.root}, differ...), fmt.Sprintf("other states before step %d", d.Step)}
	}
	return nil
}

// kept says whether a member that is ready keeps the state before a step.
func (d *decision) kept(step uint64) bool {
	return slices.ContainsFunc(d.all, func(s Status) bool { return s.Role == Ready && d.follows(s) && slices.Contains(s.Keeps, step) })
}

// rows finds how many rows the step has.
func (d *decision) rows() error {
	for rank, s := range d.all {
		if s.Role != Ready || d.Roles[rank] != Ready || s.Step != d.Step || s.Batch == 0 {
			continue
		}
		if d.Batch != 0 && s.Batch != d.Batch {
			return &DifferError{[]int{d.root, rank}, fmt.Sprintf("%d and %d rows of step %d", d.Batch, s.Batch, d.Step)}
		}
		d.Batch = s.Batch
	}
	return nil
}

// behind says whether a member lacks the step before.
func (d *decision) behind(rank int) bool { return !d.Base[rank] && d.all[rank].Step < d.Step }

// before has those who are a step behind get what they lack of it.
func (d *decision) before() {
	for b := range d.buckets {
		for rank, s := range d.all {
			if d.behind(rank) && (s.Try != d.ref.LastTry || !slices.Contains(s.Have, b)) {
				d.Before = append(d.Before, Transfer{b, d.root})
				break
			}
		}
	}
}

// counts says whether what a member has made of the step counts.
func (d *decision) counts(rank int) bool {
	return !d.Void[rank] && !d.Base[rank] && d.all[rank].Step == d.Step
}

// sums finds which sums there are.
func (d *decision) sums() {
	for b := range d.buckets {
		root, lack := -1, false
		for rank, s := range d.all {
			if !d.counts(rank) || !slices.Contains(s.Have, b) {
				lack = true
			} else if root < 0 {
				root = rank
			}
		}
		switch {
		case root < 0:
			d.Reduce = append(d.Reduce, b)
		case lack:
			d.Spread = append(d.Spread, Transfer{b, root})
		}
	}
}

// compute divides the rows that nobody has covered.
func (d *decision) compute() error {
	d.Compute = make([][]Span, len(d.all))
	if len(d.Reduce) == 0 {
		return nil
	}
	var covered []Span
	for rank, s := range d.all {
		if d.counts(rank) {
			covered = append(covered, s.Covered...)
		}
	}
	rest, ok := Rest(d.Batch, covered)
	if !ok {
		return fmt.Errorf("%w: rows of step %d were computed twice: %v of %d", ErrDiffer, d.Step, covered, d.Batch)
	}
	d.share(rest)
	return nil
}

// share divides rows among those who are ready.
func (p *Plan) share(rows []Span) {
	p.Compute = make([][]Span, len(p.Roles))
	var ready []int
	for rank, r := range p.Roles {
		if r == Ready {
			ready = append(ready, rank)
		}
	}
	for i, part := range divide(rows, len(ready)) {
		p.Compute[ready[i]] = part
	}
}

// Next is the plan of the step after one that went well, of so many rows, among the same members.
func (p Plan) Next(buckets, batch int) Plan {
	next := Plan{Step: p.Step + 1, Batch: batch, Era: p.Era, Roles: p.Roles, Void: make([]bool, len(p.Roles)), Base: make([]bool, len(p.Roles))}
	for b := range buckets {
		next.Reduce = append(next.Reduce, b)
	}
	next.share([]Span{{Lo: 0, Hi: batch}})
	return next
}

// Of is a plan that was made when nobody knew how many rows the step has.
func (p Plan) Of(batch int) Plan {
	p.Batch = batch
	p.share([]Span{{Lo: 0, Hi: batch}})
	return p
}
