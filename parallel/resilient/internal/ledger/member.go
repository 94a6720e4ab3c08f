package ledger

import (
	"slices"
)

// Role is what a member can do.
type Role uint8

// The roles.
const (
	Fresh    Role = iota // it has nothing yet
	Catching             // it gets the state of some step, and keeps the sums of all steps from there
	Ready                // it has the state
)

// Status is what a member tells the others.
type Status struct {
	Role    Role
	Era     string   // of which it has its sums; statuses of one era follow from one another
	Step    uint64   // that is under way, or is to come
	Try     uint64   // of the step; what was made in another try does not count
	Batch   int      // rows of the step; 0: not known here
	Have    []int    // buckets of the step whose sums are here
	Covered []Span   // rows of the step that its contributions have
	Last    bool     // it has all sums of the step before
	LastTry uint64   // in which they were made
	Digest  string   // of the state before the step; empty: not known
	Base    uint64   // of one that is catching: the step before which its state is
	Loaded  bool     // of one that is catching: it has all of that state, and needs nobody for it
	Claims  bool     // of one that is catching: it has the state before Step
	Keeps   []uint64 // steps before which the state is kept here, for those who are catching
}

// Member is one member's own status, and how it changes. It is not safe for concurrent use.
type Member struct {
	buckets int
	now     Status
}

// New is a member of a team whose steps have so many buckets. With a state it is ready for the step
// to come.
func New(buckets int, ready bool, step uint64) *Member {
	m := &Member{buckets: buckets}
	if ready {
		m.now.Role, m.now.Step = Ready, step
	}
	return m
}

// Status is a copy of what the member would tell.
func (m *Member) Status() Status {
	s := m.now
	s.Have, s.Covered, s.Keeps = slices.Clone(s.Have), slices.Clone(s.Covered), slices.Clone(s.Keeps)
	return s
}

// Step is the one that is under way, or is to come.
func (m *Member) Step() uint64 { return m.now.Step }

// Role is what the member can do.
func (m *Member) Role() Role { return m.now.Role }

// Has says whether the sum of a bucket of the step is here.
func (m *Member) Has(bucket int) bool { return slices.Contains(m.now.Have, bucket) }

// Whole says whether all sums of the step are here.
func (m *Member) Whole() bool { return len(m.now.Have) == m.buckets }

// Take begins with a plan. void says that what this member has made of the step does not count.
func (m *Member) Take(p Plan, rank int, era string) (void bool) {
	was := m.now
	m.now.Era, m.now.Role, m.now.Claims, m.now.Digest = era, p.Roles[rank], false, ""
	if p.Base[rank] {
		m.now = Status{Role: Catching, Era: era, Step: p.Step, Try: p.Try, Base: p.Step}
		return true
	}
	if was.Step == p.Step {
		m.now.Try, m.now.Batch = p.Try, p.Batch
	}
	if void = p.Void[rank]; void {
		m.clear()
	}
	return void
}

func (m *Member) clear() { m.now.Have, m.now.Covered = nil, nil }

// Loaded notes that all of the state at Base is here.
func (m *Member) Loaded() { m.now.Loaded = true }

// Keep notes before which steps the state is kept here.
func (m *Member) Keep(steps ...uint64) { m.now.Keeps = steps }

// Rows notes how many rows the step has, which is the same on all members.
func (m *Member) Rows(n int) { m.now.Batch = n }

// Known notes a digest of the state before the step, until the next plan.
func (m *Member) Known(digest string) { m.now.Digest = digest }

// Claim says that a member that was catching has the state before the step.
func (m *Member) Claim() { m.now.Claims = m.now.Role == Catching }

// Computed notes that contributions have some more rows.
func (m *Member) Computed(spans []Span) { m.now.Covered = append(m.now.Covered, spans...) }

// Summed notes that the sum of a bucket is here. All members have begun the step then, and nobody
// needs the sums of the one before.
func (m *Member) Summed(bucket int) {
	if !m.Has(bucket) {
		m.now.Have = append(m.now.Have, bucket)
	}
	m.now.Last = false
}

// Applied notes that the step was made of its sums. The next one begins.
func (m *Member) Applied() {
	m.now.Last, m.now.LastTry = true, m.now.Try
	m.now.Step, m.now.Try, m.now.Batch = m.now.Step+1, 0, 0
	m.clear()
}

// Abandoned notes that the step came to nothing on all members. It may be tried again.
func (m *Member) Abandoned() {
	m.now.Try++
	m.clear()
}
