package resilient

import (
	"cmp"
	"context"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/internal/losses"
	"github.com/weft-project/weft/parallel/resilient/internal/ledger"
)

// exchange is the sums of a plan while they are made.
type exchange struct {
	*Team
	plan  ledger.Plan
	ready []chan struct{}  // by bucket: closed when this member's contribution is there
	bad   []bool           // by bucket: it has failed instead; written before ready is closed
	sums  []*device.Buffer // by bucket
}

func (t *Team) newExchange() *exchange {
	n := len(t.layout)
	x := &exchange{Team: t, plan: *t.plan, ready: make([]chan struct{}, n), bad: make([]bool, n), sums: make([]*device.Buffer, n)}
	for b := range x.ready {
		x.ready[b] = make(chan struct{})
	}
	return x
}

// carryOut computes this member's rows, while sums are made. Where it cannot, the others hear of
// that with the sums.
func (x *exchange) carryOut(c context.Context, w work) error {
	ended := make(chan error, 1)
	go func() { ended <- x.makeSums(c) }()
	adds, failed := x.compute(c, w, x.plan.Compute[x.g.Rank()], func(b int) { close(x.ready[b]) })
	for b, r := range x.ready {
		select {
		case <-r:
		default:
			x.bad[b] = failed != nil
			close(r)
		}
	}
	err := <-ended
	if adds != nil {
		adds.settle(failed == nil)
	}
	x.failed = cmp.Or(failed, x.failed)
	return err
}

// keepSums has the team keep the sums that count.
func (x *exchange) keepSums() (err error) {
	for b, sum := range x.sums {
		if sum == nil {
			continue
		}
		if bad, merr := x.marked(b, sum); bad && b < len(x.layout)-1 || merr != nil {
			err = cmp.Or(err, merr)
			_ = sum.Release() // ours
			continue
		}
		x.keepSum(b, sum)
	}
	return err
}

// makeSums makes the sums one after another, in the same order on all members.
func (x *exchange) makeSums(c context.Context) error {
	for _, tr := range x.plan.Spread {
		sum, err := x.broadcast(c, tr, x.Team.sums)
		if err != nil {
			return x.of(tr.Bucket, err)
		}
		x.sums[tr.Bucket] = sum
	}
	for _, b := range x.plan.Reduce {
		<-x.ready[b]
		in, err := x.contribution(b, x.bad[b])
		if err == nil {
			x.sums[b], err = x.reduce(c, x.layout[b].dtype, in)
		}
		if err != nil {
			return x.of(b, err)
		}
	}
	return nil
}

// of says of which gradients an error is.
func (t *Team) of(b int, err error) error {
	var list []string
	for _, i := range t.layout[b].Params {
		list = append(list, t.names[i])
	}
	return losses.Of(list, err)
}

func (t *Team) reduce(c context.Context, d device.Dtype, in *device.Buffer) (*device.Buffer, error) {
	if t.g.Size() == 1 {
		return in, t.g.Err()
	}
	defer in.Release() //nolint:errcheck // ours
	return t.g.AllReduced(c, collective.Sum, d, in)
}

// broadcast gives all members the sum that one has.
func (t *Team) broadcast(c context.Context, tr ledger.Transfer, from []*device.Buffer) (*device.Buffer, error) {
	l := t.layout[tr.Bucket]
	var mine *device.Buffer
	if t.g.Rank() == tr.Root {
		mine = from[tr.Bucket]
	}
	if t.g.Size() == 1 {
		return mine.Retain(), t.g.Err()
	}
	return t.g.Broadcasted(c, l.dtype, l.Bytes/l.dtype.Size(), mine, tr.Root)
}

// spread has a sum of the step before go to those who lack it; keep says that this member does.
func (t *Team) spread(c context.Context, tr ledger.Transfer, from []*device.Buffer, keep bool) error {
	sum, err := t.broadcast(c, tr, from)
	if err != nil {
		return t.of(tr.Bucket, err)
	}
	if keep {
		t.keepSum(tr.Bucket, sum)
		return nil
	}
	return sum.Release()
}

func (t *Team) keepSum(b int, sum *device.Buffer) {
	host.Forget(t.sums[b : b+1])
	t.sums[b] = sum
	t.m.Summed(b)
	if t.last[0] != nil { // nobody needs them any more
		host.Forget(t.last)
	}
}
