package schedule

// Config is the same for all workers.
type Config struct {
	Every      int  // inner steps from one exchange of a fragment to its next; 1 or more
	Fragments  int  // 1 to Every
	Delay      int  // inner steps while an exchange is under way; less than Every/Fragments
	FirstCalls bool // the first worker that is due calls the others; else each waits until it is
}

// Action is what a worker does after an inner step.
type Action uint8

// The actions.
const (
	Apply Action = iota + 1 // wait for the exchange that is under way, and apply its result
	Begin                   // begin the next exchange
	Call                    // tell the others that it has begun
)

// Machine is where one worker stands. Make it with New.
type Machine struct {
	cfg    Config
	round  uint64 // the first exchange that has not been applied
	steps  uint64
	since  int    // inner steps since the last exchange began, or failed before that
	called uint64 // the exchanges before this one have been called by somebody
	end    uint64 // the exchanges before this one are all, unless there are more inner steps; 0: not known

	flying bool
	age    int       // inner steps since that one began
	before int       // since, when it began
	work   []float64 // by fragment: what this worker has done since its exchange before
	lent   float64   // of that, what the last exchange took
}

// New makes the machine of a worker that has done nothing yet.
func New(cfg Config) *Machine { return &Machine{cfg: cfg, work: make([]float64, cfg.Fragments)} }

// Round is how many exchanges have been applied.
func (m *Machine) Round() uint64 { return m.round }

// Steps is how many inner steps were made; of a group, by the one that made most.
func (m *Machine) Steps() uint64 { return m.steps }

// Flying says whether an exchange is under way.
func (m *Machine) Flying() bool { return m.flying }

// Fragment is the one that an exchange is of.
func (m *Machine) Fragment(round uint64) int { return int(round % uint64(m.cfg.Fragments)) }

// length is how many inner steps come before an exchange. Those of a turn of all fragments are
// Every together, also where that is no multiple of their number.
func (m *Machine) length(round uint64) int {
	k := m.Fragment(round)
	return (k+1)*m.cfg.Every/m.cfg.Fragments - k*m.cfg.Every/m.cfg.Fragments
}

// coming is the exchange to begin next.
func (m *Machine) coming() uint64 {
	if m.flying {
		return m.round + 1
	}
	return m.round
}

// Step is an inner step, of some weight, that was made. The answer is what to do now.
func (m *Machine) Step(weight float64) (do []Action) {
	m.Resume()
	m.steps++
	m.since++
	for f := range m.work {
		m.work[f] += weight
	}
	if m.flying {
		m.age++
	}
	full := m.since >= m.length(m.coming())
	called := m.cfg.FirstCalls && m.called > m.coming()
	if m.flying && (m.age >= m.cfg.Delay || full || called) {
		do = append(do, Apply)
	}
	if !full && !called {
		return do
	}
	if do = append(do, Begin); m.cfg.FirstCalls && !called {
		do = append(do, Call)
	}
	if m.cfg.Delay == 0 {
		do = append(do, Apply)
	}
	return do
}

// Called says that another worker has begun an exchange. It may come at any time, and twice.
func (m *Machine) Called(round uint64) { m.called = max(m.called, round+1) }

// Began says that the next exchange has begun, and what it is: weight is this worker's.
func (m *Machine) Began() (round uint64, fragment int, weight float64) {
	f := m.Fragment(m.round)
	m.lent, m.work[f] = m.work[f], 0
	m.flying, m.age, m.before, m.since = true, 0, m.since, 0
	return m.round, f, m.lent
}

// Ended says that the exchange has been applied, or has failed. One that has failed is due again at
// the next step.
func (m *Machine) Ended(ok bool) {
	m.flying = false
	if ok {
		m.round++
		m.lent = 0
		return
	}
	m.work[m.Fragment(m.round)] += m.lent
	m.since = max(m.since+m.before, m.length(m.round))
}

// Forget says that what this worker has done since the exchanges before is given up.
func (m *Machine) Forget() {
	clear(m.work)
	m.lent = 0
}

// Finish says whether an exchange is still to be made, where no inner step comes any more: one of
// each fragment is.
func (m *Machine) Finish() bool {
	if m.end == 0 {
		m.end = m.round + uint64(m.cfg.Fragments)
	}
	return m.round < m.end
}

// Resume says that there are more inner steps.
func (m *Machine) Resume() { m.end = 0 }

// Position is where the workers of a group go on.
type Position struct {
	Round uint64 // the exchange that comes next
	Steps uint64
	Since int    // inner steps since the one before; it comes at the next step where they are enough
	End   uint64 // the exchanges before this one are all; 0: there are more inner steps
}

// Position is this worker's; no exchange is under way.
func (m *Machine) Position() Position { return Position{m.round, m.steps, m.since, m.end} }

// Common is where a group goes on whose workers stand there: as far as the first of them is. An
// exchange that has failed on all comes at once, and others as soon as they would have for who is
// next to it. Where somebody has exchanges of the end to make all make them; where all have made
// them, and nobody a step since, so have the others.
func Common(all []Position) (p Position) {
	for _, q := range all {
		p.Round, p.Steps = max(p.Round, q.Round), max(p.Steps, q.Steps)
	}
	ended := true
	for _, q := range all {
		if q.Round == p.Round {
			p.Since, ended = max(p.Since, q.Since), ended && q.End == q.Round
		}
		if q.End > p.Round {
			p.End = q.End
		}
	}
	if p.End == 0 && ended {
		p.End = p.Round
	}
	return p
}

// Spent is the fragment of the exchange that has failed here alone: what this worker gave to it is
// in the result with which the others are at p. It is −1 where there is none. Where that exchange
// has failed on all, and the others have made it again without this worker, that is given up: it
// cannot tell.
func (m *Machine) Spent(p Position) int {
	if p.Round > m.round && m.lent > 0 {
		return m.Fragment(m.round)
	}
	return -1
}

// Go goes on at a position. Exchanges that others have applied count as applied here.
func (m *Machine) Go(p Position) {
	if f := m.Spent(p); f >= 0 {
		m.work[f] -= m.lent
	}
	m.round, m.steps, m.lent, m.since, m.end = p.Round, p.Steps, 0, p.Since, p.End
}
