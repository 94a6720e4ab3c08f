package parallel

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/internal/losses"
	"github.com/weft-project/weft/parallel/internal/peers"
)

// What can go wrong with replicas.
var (
	// ErrParameters: parameters are not the same on all ranks, or are no parameters.
	ErrParameters = peers.ErrParameters
	// ErrRows: a number of rows that cannot be, or no rows on any rank.
	ErrRows = losses.ErrRows
	// ErrConfig: a Config that cannot be.
	ErrConfig = errors.New("bad configuration")
	// ErrFailed: a rank could not do its part; see [FailureError].
	ErrFailed = peers.ErrFailed
	// ErrNotFinite: a gradient is NaN or infinite; see [NotFiniteError].
	ErrNotFinite = peers.ErrNotFinite
)

// Config is how replicas are kept. The zero value works; it is the same on all ranks.
type Config struct {
	// Bucket is how many bytes of small gradients travel together, 1 MiB if 0. Gradients of so many
	// bytes and more travel alone, and are not copied.
	Bucket int
	// Check has Backward fail with a NotFiniteError where a rank's gradient is NaN or infinite.
	Check bool
	// Names are of the parameters, for errors. Without them parameters are told apart by number.
	Names []string
	// Wire is how gradients of float32 travel; Exact if 0. A first step is always exact.
	Wire Wire
	// LowRank has large matrices travel as two thin ones.
	LowRank LowRank
}

// violations are all that is wrong with the configuration.
func (c Config) violations() error {
	var errs []error
	bad := func(format string, v ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, v...)...))
	}
	if c.Bucket < 0 {
		bad("Bucket %d; expected a number of bytes", c.Bucket)
	}
	if most := device.Capacity(); int64(c.Bucket) > most {
		bad("Bucket of %d bytes; this machine has %d: %w", c.Bucket, most, device.ErrMemory)
	}
	if c.Wire > Int8 {
		bad("Wire %d; expected Exact, BFloat16 or Int8", c.Wire)
	}
	if c.LowRank.Rank < 0 || c.LowRank.Rank > mostRank {
		bad("LowRank.Rank %d; expected 0 to %d", c.LowRank.Rank, mostRank)
	}
	return errors.Join(errs...)
}

// defaultBucket is for what is large enough to be worth a message of its own.
const defaultBucket = 1 << 20

// Replicas are a model's parameters, the same on all members of a group. Its methods are called on
// all members, in the same order, by one goroutine at a time.
type Replicas struct {
	g       *collective.Group
	config  Config
	limit   int // Config.Bucket, or its default
	params  []*autodiff.Tensor
	names   []string
	devices []device.Device
	of      map[*autodiff.Tensor]int // where params has them

	mu       sync.Mutex
	steps    uint64             // that have gone well
	total    float64            // rows that weights are for: those of the step before, on all ranks
	expected []int              // parameters that were used in the step before, as they came
	rowsOnly []bool             // of which parameters only rows came in the step before
	buckets  []bucket           // of the expected ones; the last one has the header
	kept     []*autodiff.Tensor // gradients that were accumulated, for nobody to free but this; or nil
	keptRows int
	narrows  map[int]*collective.Narrow // of parameters that travel alone in fewer bits
	lows     map[int]*factors           // of parameters that travel as thin matrices
}

// Replicate gives all members of the group the values that the parameters have on rank 0. All call
// it, with parameters of the same names, shapes and dtypes in the same order: else all get a
// DifferenceError. Where it fails no value has changed.
func Replicate(c context.Context, g *collective.Group, params []*autodiff.Tensor, config Config) (*Replicas, error) {
	r := &Replicas{
		g: g, config: config, limit: config.Bucket, params: params, names: config.Names,
		of: map[*autodiff.Tensor]int{}, total: 1, kept: make([]*autodiff.Tensor, len(params)), devices: make([]device.Device, len(params)),
		rowsOnly: make([]bool, len(params)), narrows: map[int]*collective.Narrow{}, lows: map[int]*factors{},
	}
	if r.limit <= 0 {
		r.limit = defaultBucket
	}
	if err := r.compare(c, r.inspect()); err != nil {
		return nil, fmt.Errorf("parallel: Replicate: %w", err)
	}
	if err := r.spread(c); err != nil {
		return nil, fmt.Errorf("parallel: Replicate: %w", err)
	}
	r.buckets = r.layout(nil, r.rowsOnly, true)
	return r, nil
}

// inspect checks what this rank brings.
func (r *Replicas) inspect() error {
	if err := r.config.violations(); err != nil {
		return err
	}
	if len(r.names) == 0 {
		for i := range r.params {
			r.names = append(r.names, strconv.Itoa(i))
		}
	}
	if len(r.names) != len(r.params) || len(r.params) == 0 {
		return fmt.Errorf("%w: %d names of %d parameters", ErrParameters, len(r.names), len(r.params))
	}
	for i, p := range r.params {
		if p.Err() != nil {
			return fmt.Errorf("%w: %s: %w", ErrParameters, r.names[i], p.Err())
		}
		if _, twice := r.of[p]; twice || !p.RequiresGrad() || !p.IsLeaf() {
			return fmt.Errorf("%w: %s (%v) must be a leaf that requires a gradient, given once", ErrParameters, r.names[i], p)
		}
		r.of[p] = i
		value, err := p.Acquire()
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrParameters, r.names[i], err)
		}
		r.devices[i] = value.Device()
		_ = value.Release() // ours
	}
	return nil
}

// compare fails on all ranks where parameters differ between any.
func (r *Replicas) compare(c context.Context, own error) error {
	offer := peers.Offer{List: make([]string, len(r.params)), Err: own, Config: []string{
		fmt.Sprintf("Config.Bucket: %d", r.limit), fmt.Sprintf("Config.Check: %t", r.config.Check),
		fmt.Sprintf("Config.Wire: %d", r.config.Wire), fmt.Sprintf("Config.LowRank: %+v", r.config.LowRank),
	}}
	for i, p := range r.params {
		if own == nil {
			offer.List[i] = fmt.Sprintf("%s: %v", r.names[i], p.Type())
		}
	}
	return peers.Compare(c, r.g, offer)
}

// spread gives all ranks the values of rank 0.
func (r *Replicas) spread(c context.Context) error {
	if r.g.Size() == 1 {
		return nil
	}
	values := make([]*autodiff.Tensor, len(r.params))
	var errs []error
	for i, p := range r.params { // all, or ranks would no longer call the same
		t := p.Type()
		var mine *device.Buffer
		var err error
		if r.g.Rank() == 0 {
			mine, err = p.Acquire()
			errs = append(errs, err)
		}
		all, err := r.g.Broadcasted(c, t.Dtype, t.Shape.Elems(), mine, 0)
		host.Release(mine)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		values[i] = autodiff.Transient(t, all)
		defer autodiff.Release(values[i])
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return autodiff.Assign(r.params, values)
}
