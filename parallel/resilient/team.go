package resilient

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/parallel/resilient/internal/ledger"
	"github.com/weft-project/weft/rpc"
)

// Team is one member's part in training a model together. Its methods are called by one goroutine
// at a time.
type Team struct {
	cfg     Config
	names   []string
	params  []*autodiff.Tensor
	devices []device.Device
	layout  []bucket
	spec    []string // what must be the same on all members

	g     *collective.Group
	mail  *mail
	known *knowing        // when the group ended
	over  <-chan struct{} // closed when the members are about to become others; nil: never
	world int             // how many members the group had at first

	m      *ledger.Member
	plan   *ledger.Plan // nil: the members have to tell their statuses first
	prev   *ledger.Plan // of the step before, of which that of the next one follows; nil where plan is there, or has to be agreed on
	tell   bool         // a digest of the state goes with the next status
	done   bool         // this member makes no more steps
	moves  bool         // all members leave the group at once, for another one
	batch  int          // rows of the step under way; 0: not known
	broken error        // this member could not make a step that the others have made
	failed error        // why this member could not compute its rows of the step under way

	mine  []*device.Buffer // contributions, by bucket; nil: zeros
	blank []*device.Buffer // zeros, by bucket
	heads header           // what this member says of the step
	sums  []*device.Buffer // by bucket
	last  []*device.Buffer // of the step before
	loss  float64          // of the last step that was made

	late     map[string]time.Time // when newcomers had called, and did not come
	keeps    *keeping             // states for newcomers
	catching *catching
	change   Change // to be told of
	since    time.Time
	life     string            // this member's, through all epochs
	lives    map[string]string // the members' last known workers, by life
	met      bool              // the members of this epoch have told their lives
}

// New makes a team of the members of a group, which all call it. Members may bring different steps
// and values: those that have come furthest are right, of several the one of the lowest rank. They
// train at once. On the others New returns when they have got the state from them.
//
// The group belongs to the team. New fails with a [DifferenceError] on all members where names,
// shapes, dtypes or rules differ.
func New(c context.Context, g *collective.Group, cfg Config) (*Team, error) {
	t, err := newTeam(cfg)
	if err != nil {
		return nil, fmt.Errorf("resilient: New: %w", errors.Join(err, refuse(c, g, err)))
	}
	t.m = ledger.New(len(t.layout), true, cfg.Step)
	if err := t.attach(c, g); err != nil {
		t.dropAll()
		return nil, fmt.Errorf("resilient: New: %w", err)
	}
	return t, nil
}

// refuse tells the other members why this one cannot take part: as one that differs from them.
func refuse(c context.Context, g *collective.Group, why error) error {
	list := []string{why.Error()}
	_, err := collective.Agree(c, g, word{Nonce: rand.Text(), Spec: digestOf(list)})
	if err == nil {
		_, err = collective.Agree(c, g, list)
	}
	return errors.Join(err, g.Close())
}

// Join makes this worker a member of a team that trains already: of that whose group has the name.
// It returns when this worker has the others' state. What cfg brings is replaced.
func Join(c context.Context, w *rpc.Worker, name string, cfg Config) (*Team, error) {
	t, err := newTeam(cfg)
	if err == nil {
		t.m = ledger.New(len(t.layout), false, 0)
		var g *collective.Group
		if g, err = enlist(c, w, name); err == nil {
			err = t.attach(c, g)
		}
	}
	if err != nil {
		t.dropAll()
		return nil, fmt.Errorf("resilient: Join team %q: %w", name, err)
	}
	return t, nil
}

func newTeam(cfg Config) (*Team, error) {
	if err := cfg.violations(); err != nil {
		return nil, err
	}
	cfg.Min, cfg.Bucket, cfg.Logger = max(cfg.Min, 1), cmp.Or(cfg.Bucket, 1<<20), cmp.Or(cfg.Logger, slog.Default())
	t := &Team{cfg: cfg, keeps: newKeeping(), late: map[string]time.Time{}, life: rand.Text()}
	all := maps.Collect(cfg.Params)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		if p.Err() != nil || !p.RequiresGrad() || !p.IsLeaf() {
			return nil, fmt.Errorf("%w: parameter %q (%v) must be a leaf that requires a gradient", ErrConfig, name, p)
		}
		value, err := p.Acquire()
		if err != nil {
			return nil, fmt.Errorf("%w: parameter %q: %w", ErrConfig, name, err)
		}
		t.names, t.params, t.devices = append(t.names, name), append(t.params, p), append(t.devices, value.Device())
		_ = value.Release() // ours
		t.spec = append(t.spec, fmt.Sprintf("parameter %s: %v", name, p.Type()))
	}
	if len(t.params) == 0 {
		return nil, fmt.Errorf("%w: there are no parameters", ErrConfig)
	}
	s, err := cfg.Optimizer.State()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	for i, group := range s.Meta.Groups {
		rule := group.Rule
		rule.LR = 0 // which travels with the state
		t.spec = append(t.spec, fmt.Sprintf("optimizer's group %d: %+v of %v", i, rule, slices.Sorted(maps.Keys(group.Steps))))
	}
	t.spec = append(t.spec, fmt.Sprintf("Config: Bucket %d, Min %d, Max %d", cfg.Bucket, cfg.Min, cfg.Max))
	t.lay()
	return t, nil
}

// Next is the step to come.
func (t *Team) Next() uint64 { return t.m.Step() }

// Rank is this member's in the team as it is now, and Size how many members there are.
func (t *Team) Rank() int { return t.g.Rank() }

// Size is how many members there are.
func (t *Team) Size() int { return t.g.Size() }

// Members are the workers, by rank.
func (t *Team) Members() []string { return workers(t.g) }

func workers(g *collective.Group) (names []string) {
	for _, m := range g.Members() {
		names = append(names, m.Worker)
	}
	return names
}

// attach makes a group the team's, and returns when this member has the state.
func (t *Team) attach(c context.Context, g *collective.Group) error {
	m, err := listen(g.Worker(), g.Name(), workers(g), t.keeps)
	if err != nil {
		return err
	}
	t.g, t.mail, t.plan, t.prev, t.tell, t.done, t.moves = g, m, nil, nil, true, false, false
	t.known, t.change.Short, t.met, t.world = know(g), 0, false, g.Size()
	err = t.sync(c)
	for err == nil && t.m.Role() != ledger.Ready {
		step := t.m.Step()
		if err = t.follow(c); t.m.Step() > step { // the team has gone on, and this member with it
			t.changed()
		}
	}
	if err != nil {
		return errors.Join(err, t.detach())
	}
	return nil
}

// detach leaves the group, and keeps the state.
func (t *Team) detach() error {
	if t.mail == nil {
		return nil
	}
	t.stopCatching()
	if !t.moves { // also where the group has ended: others may be about to go on with this member
		t.mail.sayGone(context.Background(), workers(t.g))
	}
	t.mail.quit()
	t.mail = nil
	return t.g.Close()
}

// Close ends this member's part. Where others go on they go on without it; where all members close
// the team after the same step, each waits until all have that step. It does not close the worker.
func (t *Team) Close(c context.Context) error {
	if t.mail == nil {
		return nil
	}
	t.done, t.plan = true, nil
	err := t.sync(c)
	if !errors.Is(err, elastic.ErrOver) { // in the next epoch others may want its last sums
		t.dropAll()
	}
	if errors.Is(err, ErrEnded) || errors.Is(err, collective.ErrExcluded) {
		err = nil // that is what it is for
	}
	if err = errors.Join(err, t.detach()); err != nil {
		return fmt.Errorf("resilient: Close: %w", err)
	}
	return nil
}
