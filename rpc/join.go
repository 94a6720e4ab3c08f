package rpc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/admission"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/tracing"
	"github.com/weft-project/weft/store"
)

// Join makes this process, or this part of it, a member of the job: it claims its rank and name in
// the store, links with other workers (all of them in a small world, some in a large one) and
// checks the device maps of all. It returns when all workers of the world are known, and these
// links are there; others are made when they are needed. A worker that was lost can join again,
// under the same name and rank, as soon as one of the others has noticed the loss, or where an
// agent starts it in its place.
//
// It fails with ErrConfig (all violations at once), ErrRankTaken, ErrNameTaken, ErrWorldSize (also
// where a dynamic world meets a static one), transport.ErrIdentity when the job has another token
// or CA, device.ErrBadMap, and ErrTimeout naming the workers that did not come.
func Join(c context.Context, cfg Config) (*Worker, error) {
	p, err := cfg.prepare()
	if err != nil {
		return nil, fmt.Errorf("rpc: join: %w", err)
	}
	if _, bounded := c.Deadline(); !bounded {
		var cancel context.CancelFunc
		c, cancel = context.WithTimeout(c, p.JoinTimeout)
		defer cancel()
	}
	closeStore, err := p.meet(c)
	if err != nil {
		return nil, fmt.Errorf("rpc: join: %w", err)
	}
	if err = p.checkPlace(); err != nil {
		err = fmt.Errorf("%w: %w", ErrConfig, err)
	} else {
		err = p.network()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rpc: join: %w", err), closeStore())
	}
	w := newWorker(p, closeStore)
	if err = w.join(c, p); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && p.apart != "" {
			err = fmt.Errorf("%w; %s", err, p.apart)
		}
		err = w.wrap("", "join", ctx.AsTimeout(err))
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// meet finds the store, rank and world size where the caller gave no store.
func (p *prepared) meet(c context.Context) (closeStore func() error, err error) {
	if p.Store != nil {
		return func() error { return nil }, nil
	}
	url := p.Init
	if url == "" {
		url = "env://"
	}
	secure, err := p.storeTLS(url)
	if err != nil {
		return nil, err
	}
	open := store.OpenConfig{NoWait: true, Rank: p.Rank, WorldSize: p.WorldSize, Logger: p.Logger, Schemes: p.Schemes, TLS: secure} // Join waits, and says for whom
	if _, query, _ := strings.Cut(url, "?"); strings.Contains(query, "rank=") || strings.Contains(query, "world_size=") {
		open.Rank, open.WorldSize = 0, 0 // the URL says more
	}
	r, err := store.Open(c, url, open)
	if errors.Is(err, store.ErrBadURL) && url == "env://" {
		return nil, fmt.Errorf("%w; start the program with weft run, or set these variables for each worker", err)
	}
	if errors.Is(err, store.ErrNotTLS) {
		return nil, fmt.Errorf("%w; this worker speaks TLS with its store: "+
			"$%s=0 is for one that has no TLS, as PyTorch's", err, StoreTLSVariable)
	}
	if err != nil {
		return nil, err
	}
	p.apart, p.succeeds = setApart(url, secure != nil), url == "env://" && succeedsAnother()
	p.Store, p.Rank, p.WorldSize = r.Store, r.Rank, r.WorldSize
	return r.Close, nil
}

// succeedsAnother says whether the agent that started this worker, and hosts the store, may have
// started one in its place before, which has ended then: weft run counts all restarts of a job, and
// torchrun those of the group.
func succeedsAnother() bool {
	again := func(name string) bool { n, err := strconv.Atoi(os.Getenv(name)); return err == nil && n > 0 }
	return os.Getenv("TORCHELASTIC_USE_AGENT_STORE") == "True" && (again(tracing.RestartsVariable) || again("TORCHELASTIC_RESTART_COUNT"))
}

func newWorker(p *prepared, closeStore func() error) *Worker {
	w := &Worker{
		name: p.Name, rank: p.Rank, world: p.WorldSize, log: p.Logger,
		devices: p.devices, ownsStore: closeStore, net: p.Network,
	}
	w.life, w.end = context.WithCancelCause(context.Background())
	w.load = admission.NewTally(&w.work)
	known := roster.Member{Name: w.name, Rank: w.rank, World: w.world}
	w.members = membership.New(w.life, known, w.log, w.net, membership.NewRegistry(w.life, p.Store, w.net, w.log), &w.work, memberShell{w})
	w.calls.init(p, &w.work, w.life.Done())
	w.serving = newServing(w, p)
	return w
}

// become gives this worker its place, before anybody else can see it; under its name it begins to
// trace.
func (w *Worker) become(me roster.Member, p *prepared) error {
	w.name, w.rank, w.epoch = me.Name, me.Rank, me.Incarnation
	var err error
	w.calls.trace, w.endTrace, err = tracing.NewTracer(p.Trace, w.name, w.rank, w.epoch, func(err error) string { return outcomeOf(err).String() })
	if err != nil {
		return err
	}
	w.refs = newReferences(w)
	w.passes = ctx.NewContainer(ctx.Config{
		Worker: ctx.WorkerID(w.rank), Links: passLinks{w}, Timeout: max(p.Timeout, 0), Lease: p.PassLease, Logger: w.log, First: firstID(w.epoch), Observer: w.calls.trace.Observes(),
	})
	w.members.Become(me)
	w.refs.meet(w.refs.me)
	return nil
}

func (w *Worker) join(c context.Context, p *prepared) (err error) {
	if w.members.Listener, err = w.net.Listen(c, p.Listen); err != nil {
		return err
	}
	w.work.Go(w.members.AcceptLinks)
	me := roster.Member{
		Name: w.name, Rank: w.rank, World: w.world, Addr: w.members.Listener.Addr(), Devices: w.devices.IDs(), Maps: p.DeviceMaps,
	}
	if me.Incarnation, err = w.members.Registry.NewIncarnation(c); err != nil {
		return err
	}
	become := func(me roster.Member) error { return w.become(me, p) }
	if p.Dynamic {
		return w.members.JoinDynamic(c, me, p.mayCome, become)
	}
	return w.members.JoinStatic(c, me, p.succeeds, become)
}
