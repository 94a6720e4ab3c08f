package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/tracing"
	"github.com/weft-project/weft/rpc/roster"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// Join makes this process, or this part of it, a member of the job: it claims its rank and name in
// the store, links with other workers (all of them in a small world, some in a large one) and
// checks the device maps of all. It returns when all workers of the world are known, and these
// links are there; others are made when they are needed. A worker that was lost can join again,
// under the same name and rank, as soon as one of the others has noticed the loss.
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
	if err = p.place(); err != nil {
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
	r, err := store.Open(c, url, store.OpenConfig{NoWait: true, Logger: p.Logger, Schemes: p.Schemes, TLS: secure}) // Join waits, and says for whom
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
	p.apart = setApart(url, secure != nil)
	p.Store, p.Rank, p.WorldSize = r.Store, r.Rank, r.WorldSize
	return r.Close, nil
}

func newWorker(p *prepared, closeStore func() error) *Worker {
	w := &Worker{
		name: p.Name, rank: p.Rank, world: p.WorldSize, log: p.Logger,
		serves: p.serves, devices: p.devices, store: p.Store, ownsStore: closeStore, net: p.Network,
		peers: map[int]*peer{}, byName: map[string]*peer{}, watchers: map[*watcher]struct{}{}, ready: make(chan struct{}),
	}
	w.life, w.end = context.WithCancelCause(context.Background())
	w.registry = newRegistry(w.life, p.Store, p.Network, p.Logger)
	w.calls.init(p, &w.work, w.life.Done())
	return w
}

// become gives this worker its place, before anybody else can see it; under its name it begins to
// trace.
func (w *Worker) become(me roster.Member, p *prepared) error {
	w.name, w.rank, w.epoch, w.me = me.Name, me.Rank, me.Incarnation, me
	var err error
	w.calls.trace, w.endTrace, err = tracing.NewTracer(p.Trace, w.name, w.rank, w.epoch, func(err error) string { return outcomeOf(err).String() })
	if err != nil {
		return err
	}
	w.refs = newReferences(w)
	w.passes = ctx.NewContainer(ctx.Config{
		Worker: ctx.WorkerID(w.rank), Links: passLinks{w}, Timeout: max(p.Timeout, 0), Lease: p.PassLease, Logger: w.log, First: firstID(w.epoch), Observer: w.calls.trace.Observes(),
	})
	w.roster = roster.New(me, meshUpTo)
	self := w.newPeer(me)
	w.peers[w.rank], w.byName[w.name] = self, self
	w.refs.meet(self.node)
	return nil
}

func (w *Worker) join(c context.Context, p *prepared) (err error) {
	if w.listener, err = w.net.Listen(c, p.Listen); err != nil {
		return err
	}
	w.work.Go(w.acceptLinks)
	me := roster.Member{
		Name: w.name, Rank: w.rank, World: w.world, Addr: w.listener.Addr(), Devices: w.devices.IDs(), Maps: p.DeviceMaps,
	}
	if me.Incarnation, err = w.registry.newIncarnation(c); err != nil {
		return err
	}
	if p.Dynamic {
		return w.joinDynamic(c, me, p)
	}
	return w.joinStatic(c, me, p)
}

// voucher is a link with a member of the job, made before anything is claimed: it shows that this
// worker is of the job.
type voucher struct {
	link   transport.Link // nil where nobody is there yet
	member *roster.Member
}

func (v voucher) close() {
	if v.link != nil {
		_ = v.link.Close("joining failed") // the error tells
	}
}

func (w *Worker) joinStatic(c context.Context, me roster.Member, p *prepared) error {
	if dynamic, err := w.store.Check(c, keyRanks); err != nil {
		return err
	} else if dynamic {
		members, _, err := w.registry.scan(c)
		if i := slices.IndexFunc(members, func(m *roster.Member) bool { return m.World == 0 }); i >= 0 {
			err = fmt.Errorf("%w: this worker was told of %s, %s of %s", ErrWorldSize, worldText(w.world), members[i].Name, worldText(0))
		}
		if err != nil {
			return err
		}
	}
	v, err := w.authenticate(c)
	if err != nil {
		return err
	}
	if err := w.become(me, p); err != nil {
		v.close()
		return err
	}
	if err := w.joinRest(c, v); err != nil {
		v.close()
		return err
	}
	return nil
}

// joinRest takes this worker's place in a static world and links with the others.
func (w *Worker) joinRest(c context.Context, v voucher) error {
	if err := w.registry.claimStatic(c, &w.me); err != nil {
		return err
	}
	records, err := w.readAll(c)
	if err != nil {
		return err
	}
	if err := checkMaps(records, true); err != nil {
		w.part(c, records[0].Incarnation)
		return err
	}
	return w.linkUp(c, records, v)
}

// part holds a worker that refuses the job, as all do that see the same records, until every other
// has seen them too: who went at once would take its record along, and the others would wait for
// it. generation tells attempts apart.
func (w *Worker) part(c context.Context, generation uint64) {
	c, cancel := context.WithTimeout(c, helloTimeout)
	defer cancel()
	count, all := fmt.Sprintf("%sparting/%x/count", keyPrefix, generation), fmt.Sprintf("%sparting/%x/all", keyPrefix, generation)
	n, err := w.store.Add(c, count, 1)
	if err == nil && n == int64(w.world) {
		err = w.store.Set(c, all, []byte("1"))
	}
	if err == nil {
		err = w.store.Wait(c, all)
	}
	if err == nil {
		n, err = w.store.Add(c, count, -1)
	}
	for _, key := range []string{count, all} {
		if err == nil && n == 0 { // the last to go
			_, err = w.store.Delete(c, key)
		}
	}
	if err != nil {
		w.log.Debug("could not wait for the others before refusing", "worker", w.name, "err", err)
	}
}

// authenticate links with a member of the job before anything is claimed, so that a worker that is
// not of this job takes nobody's place.
func (w *Worker) authenticate(c context.Context) (voucher, error) {
	if w.rank == 0 {
		return w.vouchForFirst(c)
	}
	for {
		m, err := w.member(c, 0, 0)
		if err != nil {
			return voucher{}, err
		}
		link, err := w.net.Dial(c, m.Addr)
		if err == nil || errors.Is(err, transport.ErrIdentity) {
			return voucher{link, m}, err
		}
		// It may have died, and come back elsewhere.
		if perr := pause(c, pollEvery); perr != nil {
			return voucher{}, errors.Join(fmt.Errorf("%s of rank 0: %w", m.Name, err), ctx.AsTimeout(perr))
		}
	}
}

// vouchForFirst links rank 0, when it comes back, with any that is there. Where nobody answers,
// there is nobody whose place could be taken.
func (w *Worker) vouchForFirst(c context.Context) (voucher, error) {
	before, err := w.store.Check(c, rankKey(0))
	if err != nil || !before {
		return voucher{}, err
	}
	records := make([]*roster.Member, w.world-1)
	if err := parallel(len(records), func(i int) error {
		r, err := w.registry.recordOf(c, i+1)
		records[i] = r.Member
		return err
	}); err != nil {
		return voucher{}, err
	}
	v, err := w.vouch(c, records)
	if errors.Is(err, transport.ErrIdentity) {
		return v, err
	}
	return v, nil
}

// vouch links with the first of them that answers. Where some are only crowded, it asks again.
func (w *Worker) vouch(c context.Context, members []*roster.Member) (voucher, error) {
	for {
		v, err := w.vouchOnce(c, members)
		if !errors.Is(err, transport.ErrBusy) || errors.Is(err, transport.ErrIdentity) || pause(c, pollEvery) != nil {
			return v, err
		}
	}
}

func (w *Worker) vouchOnce(c context.Context, members []*roster.Member) (voucher, error) {
	var errs []error
	for _, m := range members {
		if m == nil {
			continue
		}
		within, cancel := context.WithTimeout(c, helloTimeout)
		link, err := w.net.Dial(within, m.Addr)
		cancel()
		if err == nil {
			return voucher{link, m}, nil
		}
		errs = append(errs, fmt.Errorf("%s of rank %d: %w", m.Name, m.Rank, err))
		if errors.Is(err, transport.ErrIdentity) {
			break
		}
	}
	return voucher{}, errors.Join(errs...)
}

// noticeAfter is how long Join waits in silence.
const noticeAfter = 5 * time.Second

// member waits for the record of a life after the one given.
func (w *Worker) member(c context.Context, rank int, after uint64) (*roster.Member, error) {
	notice := time.AfterFunc(noticeAfter, func() {
		w.log.Warn("still waiting for a worker to join", "worker", w.name, "rank", rank, "world", w.world)
	})
	defer notice.Stop()
	for {
		_, err := w.store.Get(c, rankKey(rank)) // waits
		var r found
		if err == nil {
			r, err = w.registry.recordOf(c, rank)
		}
		switch {
		case err == nil && r.Member != nil && r.World != w.world:
			return nil, fmt.Errorf("%w: this worker was told of %s, %s of %s", ErrWorldSize, worldText(w.world), r.Name, worldText(r.World))
		case err == nil && r.Member != nil && r.Incarnation > after && (!r.lost || w.registry.answers(c, r.Addr)):
			return r.Member, nil
		case err == nil: // it is not there any more, and may come back
			err = pause(c, pollEvery)
		}
		if err != nil {
			return nil, fmt.Errorf("waiting for the worker of rank %d of %d: %w", rank, w.world, err)
		}
	}
}

// readAll waits for the records of all workers of a static world.
func (w *Worker) readAll(c context.Context) ([]*roster.Member, error) {
	c, stop := context.WithCancelCause(c)
	defer stop(nil)
	records := make([]*roster.Member, w.world)
	err := parallel(w.world, func(rank int) (err error) {
		records[rank], err = w.member(c, rank, 0)
		if err != nil && c.Err() == nil {
			stop(err)
		}
		return err
	})
	if cause := context.Cause(c); err != nil && cause != nil && !errors.Is(err, context.DeadlineExceeded) {
		err = cause
	}
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, w.missing(records))
	}
	return records, nil
}

// missing names the ranks that have not come, as far as the store tells.
func (w *Worker) missing(records []*roster.Member) string {
	c, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var names []string
	for rank, m := range records {
		if m == nil {
			if r, err := w.registry.recordOf(c, rank); err == nil && (r.Member == nil || r.lost) {
				names = append(names, fmt.Sprint(rank))
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; these ranks are missing: " + strings.Join(names, ", ")
}

// linkUp opens the door, takes the others in, and links with those that it is to have links with.
func (w *Worker) linkUp(c context.Context, records []*roster.Member, v voucher) error {
	if at, bounded := c.Deadline(); bounded && w.world > 0 { // what is left after half of the time is for who comes in a lost one's place
		w.endure(time.Now().Add(time.Until(at) / 2))
		defer w.endure(time.Time{})
	}
	w.event(func(r *roster.Roster) {
		for _, m := range records {
			_ = r.Hear(*m) // where it is older than what a namesake wrote, that one is there
		}
	})
	close(w.ready)
	if v.link != nil {
		if p := w.peerAt(v.member.Rank); p == nil || p.node.Epoch != v.member.Incarnation || w.introduce(c, p, v.link) != nil {
			w.giveUp(v.link)
		}
	}
	var fingers []*peer
	w.event(func(r *roster.Roster) {
		r.Start()
		for _, rank := range r.Fingers() {
			fingers = append(fingers, w.peers[rank])
		}
	})
	w.dialInTurn(fingers)
	return w.awaitLinks(c, fingers)
}

// endure says until when a dial that fails is no loss.
func (w *Worker) endure(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patience = until
}

// awaitLinks waits for links. In a static world, who is lost meanwhile is awaited in its next life.
func (w *Worker) awaitLinks(c context.Context, with []*peer) error {
	for _, p := range with {
		for {
			if err := w.await(c, func() bool { return p.link != nil || p.gone != nil }); err != nil {
				return fmt.Errorf("no link with %s: %w", w.unlinkedOf(with), err)
			}
			if p.lost() == nil || w.world == 0 {
				break
			}
			m, err := w.member(c, p.rank, p.node.Epoch)
			if err != nil {
				return errors.Join(p.lost(), err)
			}
			if err := checkMaps([]*roster.Member{&w.me, m}, false); err != nil {
				return err
			}
			w.event(func(r *roster.Roster) { _ = r.Hear(*m) })
			if p = w.peerAt(p.rank); p.lost() == nil {
				w.dialInTurn([]*peer{p})
			}
		}
	}
	return nil
}

func (w *Worker) unlinkedOf(with []*peer) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, p := range with {
		if p.link == nil {
			names = append(names, p.name)
		}
	}
	return names
}
