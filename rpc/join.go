package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/refs"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// memberRecord is what a worker tells the others through the store.
type memberRecord struct {
	Name    string                `cbor:"1,keyasint"`
	Rank    int                   `cbor:"2,keyasint"`
	World   int                   `cbor:"3,keyasint"`
	Addr    string                `cbor:"4,keyasint"`
	Devices []device.ID           `cbor:"5,keyasint"`
	Maps    map[string]device.Map `cbor:"6,keyasint,omitempty"`
	Nonce   uint64                `cbor:"7,keyasint"` // tells two workers with equal records apart, and the lives of one
}

// Join makes this process, or this part of it, a member of the job: it claims its rank and name in the store, links with
// every other worker and checks the device maps of all. It returns when all links are there.
//
// It fails with ErrConfig (all violations at once), ErrRankTaken, ErrNameTaken, ErrWorldSize, transport.ErrIdentity when
// the job has another token, device.ErrBadMap, and ErrTimeout naming the workers that did not come.
func Join(c context.Context, cfg Config) (*Worker, error) {
	joinTimeout := cfg.JoinTimeout
	if joinTimeout <= 0 {
		joinTimeout = defaultJoinTimeout
	}
	if _, bounded := c.Deadline(); !bounded {
		var cancel context.CancelFunc
		c, cancel = context.WithTimeout(c, joinTimeout)
		defer cancel()
	}
	p, err := cfg.prepare()
	if err != nil {
		return nil, fmt.Errorf("rpc: join: %w", err)
	}
	closeStore, err := p.meet(c)
	if err != nil {
		return nil, fmt.Errorf("rpc: join: %w", err)
	}
	if err = p.place(); err == nil {
		err = p.network()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rpc: join: %w", err), closeStore())
	}
	w := newWorker(p, closeStore)
	if w.calls.trace, w.endTrace, err = newTracer(p, w.epoch); err == nil {
		err = w.join(c, p)
	}
	if err != nil {
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
	r, err := store.Open(c, url, store.OpenConfig{NoWait: true, Logger: p.Logger}) // Join waits, and says for whom
	if errors.Is(err, store.ErrBadURL) && url == "env://" {
		return nil, fmt.Errorf("%w; start the program with weft run, or set these variables for each worker", err)
	}
	if err != nil {
		return nil, err
	}
	p.Store, p.Rank, p.WorldSize = r.Store, r.Rank, r.WorldSize
	return r.Close, nil
}

func newWorker(p *prepared, closeStore func() error) *Worker {
	w := &Worker{
		name: p.Name, rank: p.Rank, world: p.WorldSize, log: p.Logger,
		serves: p.serves, devices: p.devices, store: p.Store, ownsStore: closeStore, net: p.Network,
		epoch: rand.Uint64(), byName: map[string]*peer{},
	}
	w.calls.init(p)
	w.refs = newReferences(w)
	w.life, w.end = context.WithCancelCause(context.Background())
	w.passes = ctx.NewContainer(ctx.Config{Worker: ctx.WorkerID(p.Rank), Links: passLinks{w}, Timeout: max(p.Timeout, 0), Logger: p.Logger})
	for rank := range p.WorldSize {
		w.peers = append(w.peers, &peer{w: w, rank: rank, name: fmt.Sprintf("rank %d", rank), dial: make(chan struct{}, 1)})
	}
	return w
}

const keyPrefix = "weft/rpc/"

func (w *Worker) join(c context.Context, p *prepared) error {
	var err error
	if w.listener, err = w.net.Listen(c, p.Listen); err != nil {
		return err
	}
	me := memberRecord{
		Name: w.name, Rank: w.rank, World: w.world, Addr: w.listener.Addr(), Devices: w.devices.IDs(), Maps: p.DeviceMaps,
		Nonce: w.epoch,
	}
	leader, err := w.authenticate(c)
	if err != nil {
		return err
	}
	if err := w.meetAll(c, me, leader); err != nil {
		if leader != nil {
			_ = leader.Close("joining failed") // the error tells
		}
		return err
	}
	return nil
}

// meetAll takes this worker's place among the others and links with them.
func (w *Worker) meetAll(c context.Context, me memberRecord, leader transport.Link) error {
	if err := w.claim(c, me); err != nil {
		return err
	}
	records, err := w.roster(c)
	if err != nil {
		return err
	}
	if err := w.enrol(records); err != nil {
		w.part(c, records[0].Nonce)
		return err
	}
	w.work.Go(w.acceptLinks)
	return w.linkAll(c, leader)
}

// part holds a worker that refuses the job, as all do that see the same records, until every other has seen them too:
// who went at once would take its record along, and the others would wait for it. generation tells attempts apart.
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

// authenticate links with rank 0 before anything is claimed, so that a worker that is not of this job takes nobody's place.
func (w *Worker) authenticate(c context.Context) (transport.Link, error) {
	if w.rank == 0 {
		return nil, nil
	}
	r, err := w.member(c, 0)
	if err != nil {
		return nil, err
	}
	return w.net.Dial(c, r.Addr)
}

// claim takes the rank and the name.
func (w *Worker) claim(c context.Context, me memberRecord) error {
	raw, err := encode(me)
	if err != nil {
		return err
	}
	nameKey, rankKey := keyPrefix+"name/"+w.name, rankKey(w.rank)
	err = w.take(c, nameKey, fmt.Sprintf("%d/%d", me.Rank, me.Nonce), func(have string) error {
		return fmt.Errorf("%w: %q by the worker of rank %s", ErrNameTaken, w.name, rankOf(have))
	})
	if err != nil {
		return w.rankFirst(c, rankKey, raw, err)
	}
	w.claims = append(w.claims, nameKey)
	if err := w.take(c, rankKey, string(raw), w.rankTaken); err != nil {
		return err
	}
	w.claims = append(w.claims, rankKey)
	return nil
}

// rankFirst prefers to report a taken rank over a taken name: a worker started twice has both.
func (w *Worker) rankFirst(c context.Context, key string, raw []byte, err error) error {
	if taken, cerr := w.store.Check(c, key); cerr == nil && taken {
		if have, gerr := w.store.Get(c, key); gerr == nil && string(have) != string(raw) {
			return w.rankTaken(string(have))
		}
	}
	return err
}

func (w *Worker) rankTaken(have string) error {
	var r memberRecord
	if err := decode([]byte(have), &r); err != nil {
		return err
	}
	return fmt.Errorf("%w: %d, by %s at %s", ErrRankTaken, w.rank, r.Name, r.Addr)
}

// take sets a key that must be free, or hold the same already.
func (w *Worker) take(c context.Context, key, value string, taken func(have string) error) error {
	have, err := w.store.CompareSet(c, key, nil, []byte(value))
	if err != nil {
		return err
	}
	if string(have) != value {
		return taken(string(have))
	}
	return nil
}

func rankKey(rank int) string { return fmt.Sprintf("%srank/%d", keyPrefix, rank) }

func rankOf(claim string) string {
	for i := range claim {
		if claim[i] == '/' {
			return claim[:i]
		}
	}
	return claim
}

// noticeAfter is how long Join waits in silence.
const noticeAfter = 5 * time.Second

// member waits for a worker's record.
func (w *Worker) member(c context.Context, rank int) (*memberRecord, error) {
	notice := time.AfterFunc(noticeAfter, func() {
		w.log.Warn("still waiting for a worker to join", "worker", w.name, "rank", rank, "world", w.world)
	})
	defer notice.Stop()
	raw, err := w.store.Get(c, rankKey(rank))
	if err != nil {
		return nil, fmt.Errorf("waiting for the worker of rank %d of %d: %w", rank, w.world, err)
	}
	r := &memberRecord{}
	if err := decode(raw, r); err != nil {
		return nil, fmt.Errorf("record of rank %d: %w", rank, err)
	}
	switch {
	case r.Rank != rank:
		return nil, fmt.Errorf("%w: the record of rank %d says %d", ErrProtocol, rank, r.Rank)
	case r.World != w.world:
		return nil, fmt.Errorf("%w: this worker was told %d, %s %d", ErrWorldSize, w.world, r.Name, r.World)
	}
	return r, nil
}

// roster waits for the records of all workers.
func (w *Worker) roster(c context.Context) ([]*memberRecord, error) {
	records := make([]*memberRecord, w.world)
	for rank := range records {
		r, err := w.member(c, rank)
		if err != nil {
			return nil, fmt.Errorf("%w%s", err, w.missing(rank+1))
		}
		records[rank] = r
	}
	return records, nil
}

// missing names the ranks from one on that have not come, as far as the store tells.
func (w *Worker) missing(from int) string {
	c, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var names []string
	for rank := from; rank < w.world; rank++ {
		if there, err := w.store.Check(c, rankKey(rank)); err == nil && !there {
			names = append(names, fmt.Sprint(rank))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; nor did rank " + strings.Join(names, ", ") + " come"
}

// enrol fills in the peers and checks every worker's device maps, so that all refuse an invalid one.
func (w *Worker) enrol(records []*memberRecord) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rank, r := range records {
		p := w.peers[rank]
		p.name, p.addr, p.node = r.Name, r.Addr, refs.Node{Rank: rank, Epoch: r.Nonce}
		w.byName[r.Name] = p
		w.refs.meet(p.node)
	}
	var errs []error
	for _, from := range records {
		for _, name := range slices.Sorted(maps.Keys(from.Maps)) {
			to := w.byName[name]
			if to == nil {
				errs = append(errs, fmt.Errorf("%w: %s maps devices to %q; %w", device.ErrBadMap, from.Name, name, ErrUnknownWorker))
				continue
			}
			if err := from.Maps[name].Validate(from.Devices, records[to.rank].Devices); err != nil {
				errs = append(errs, fmt.Errorf("%s to %s: %w", from.Name, name, err))
			}
		}
	}
	mine := records[w.rank]
	for rank, r := range records {
		w.peers[rank].there = mine.Maps[r.Name]
		w.peers[rank].back = r.Maps[w.name].Reverse()
	}
	return errors.Join(errs...)
}

// linkAll dials the workers of lower rank and waits for those of higher rank to dial.
func (w *Worker) linkAll(c context.Context, leader transport.Link) error {
	for _, p := range w.peers[:w.rank] {
		link := leader
		if p.rank > 0 || link == nil {
			var err error
			if link, err = w.dial(c, p); err != nil {
				return fmt.Errorf("link with %s: %w", p.name, err)
			}
		}
		if err := w.greet(c, link, p); err != nil {
			_ = link.Close("greeting failed") // the error tells
			return fmt.Errorf("link with %s: %w", p.name, err)
		}
		if err := w.adopt(p, link, true); err != nil {
			return err
		}
	}
	err := w.await(c, func() bool {
		return !slices.ContainsFunc(w.peers, func(p *peer) bool { return p.rank != w.rank && p.link == nil })
	})
	if err == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []string
	for _, p := range w.peers {
		if p.rank != w.rank && p.link == nil {
			missing = append(missing, p.name)
		}
	}
	return fmt.Errorf("no link from %v: %w", missing, err)
}

func (w *Worker) dial(c context.Context, p *peer) (transport.Link, error) {
	addr := p.addr
	if p.rank == w.rank {
		addr = w.listener.Addr()
	}
	return w.net.Dial(c, addr)
}
