package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/transport"
)

// voucher is a link with a member of the job, made before anything is claimed: it shows that this
// worker is of the job.
type voucher struct {
	link   transport.Link // nil where nobody is there yet
	member *roster.Member
}

func (v voucher) Close() {
	if v.link != nil {
		_ = v.link.Close("joining failed") // the error tells
	}
}

// JoinStatic joins a world whose size is known. become is called when this worker has its place.
// succeeds says that whoever had this place before has ended.
func (ms *Members) JoinStatic(c context.Context, me roster.Member, succeeds bool, become func(roster.Member) error) error {
	if dynamic, err := ms.Registry.Store.Check(c, keyRanks); err != nil {
		return err
	} else if dynamic {
		members, _, err := ms.Registry.scan(c)
		if i := slices.IndexFunc(members, func(m *roster.Member) bool { return m.World == 0 }); i >= 0 {
			err = fmt.Errorf("%w: this worker was told of %s, %s of %s", ErrWorldSize, worldText(ms.Me.World), members[i].Name, worldText(0))
		}
		if err != nil {
			return err
		}
	}
	if succeeds {
		if err := ms.Registry.Succeed(c, &me); err != nil {
			return err
		}
	}
	var v voucher
	var err error
	if me.Rank != 0 || !succeeds { // whoever succeeds rank 0 takes nobody's place
		if v, err = ms.authenticate(c); err != nil {
			return err
		}
	}
	if err := become(me); err != nil {
		v.Close()
		return err
	}
	if err := ms.joinRest(c, v); err != nil {
		v.Close()
		return err
	}
	return nil
}

// joinRest takes this worker's place in a static world and links with the others.
func (ms *Members) joinRest(c context.Context, v voucher) error {
	if err := ms.Registry.claimStatic(c, &ms.Me); err != nil {
		return err
	}
	records, err := ms.readAll(c)
	if err != nil {
		return err
	}
	if err := checkMaps(records, true); err != nil {
		ms.part(c, records[0].Incarnation)
		return err
	}
	return ms.linkUp(c, records, v)
}

// part holds a worker that refuses the job, as all do that see the same records, until every other
// has seen them too: who went at once would take its record along, and the others would wait for
// it. generation tells attempts apart.
func (ms *Members) part(c context.Context, generation uint64) {
	c, cancel := context.WithTimeout(c, HelloTimeout)
	defer cancel()
	count, all := fmt.Sprintf("%sparting/%x/count", KeyPrefix, generation), fmt.Sprintf("%sparting/%x/all", KeyPrefix, generation)
	n, err := ms.Registry.Store.Add(c, count, 1)
	if err == nil && n == int64(ms.Me.World) {
		err = ms.Registry.Store.Set(c, all, []byte("1"))
	}
	if err == nil {
		err = ms.Registry.Store.Wait(c, all)
	}
	if err == nil {
		n, err = ms.Registry.Store.Add(c, count, -1)
	}
	for _, key := range []string{count, all} {
		if err == nil && n == 0 { // the last to go
			_, err = ms.Registry.Store.Delete(c, key)
		}
	}
	if err != nil {
		ms.log.Debug("could not wait for the others before refusing", "worker", ms.Me.Name, "err", err)
	}
}

// authenticate links with a member of the job before anything is claimed, so that a worker that is
// not of this job takes nobody's place.
func (ms *Members) authenticate(c context.Context) (voucher, error) {
	if ms.Me.Rank == 0 {
		return ms.vouchForFirst(c)
	}
	for patience := lookTimeout; ; patience = min(2*patience, HelloTimeout) {
		m, err := ms.member(c, 0, 0)
		if err != nil {
			return voucher{}, err
		}
		within, cancel := context.WithTimeout(c, patience)
		link, err := ms.net.Dial(within, m.Addr)
		cancel()
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
func (ms *Members) vouchForFirst(c context.Context) (voucher, error) {
	before, err := ms.Registry.Store.Check(c, RankKey(0))
	if err != nil || !before {
		return voucher{}, err
	}
	records := make([]*roster.Member, ms.Me.World-1)
	if err := parallel(len(records), func(i int) error {
		r, err := ms.Registry.recordOf(c, i+1)
		records[i] = r.Member
		return err
	}); err != nil {
		return voucher{}, err
	}
	v, err := ms.Vouch(c, records)
	if errors.Is(err, transport.ErrIdentity) {
		return v, err
	}
	return v, nil
}

// Vouch links with the first of them that answers. Where some are only crowded, it asks again.
func (ms *Members) Vouch(c context.Context, members []*roster.Member) (voucher, error) {
	for {
		v, err := ms.vouchOnce(c, members)
		if !errors.Is(err, transport.ErrBusy) || errors.Is(err, transport.ErrIdentity) || pause(c, pollEvery) != nil {
			return v, err
		}
	}
}

func (ms *Members) vouchOnce(c context.Context, members []*roster.Member) (voucher, error) {
	var errs []error
	for _, m := range members {
		if m == nil {
			continue
		}
		within, cancel := context.WithTimeout(c, HelloTimeout)
		link, err := ms.net.Dial(within, m.Addr)
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
func (ms *Members) member(c context.Context, rank int, after uint64) (*roster.Member, error) {
	notice := time.AfterFunc(noticeAfter, func() {
		ms.log.Warn("still waiting for a worker to join", "worker", ms.Me.Name, "rank", rank, "world", ms.Me.World)
	})
	defer notice.Stop()
	for {
		_, err := ms.Registry.Store.Get(c, RankKey(rank)) // waits
		var r found
		if err == nil {
			r, err = ms.Registry.recordOf(c, rank)
		}
		switch {
		case err == nil && r.Member != nil && r.World != ms.Me.World:
			return nil, fmt.Errorf("%w: this worker was told of %s, %s of %s", ErrWorldSize, worldText(ms.Me.World), r.Name, worldText(r.World))
		case err == nil && r.Member != nil && r.Incarnation > after && (!r.lost || ms.Registry.Answers(c, r.Addr)):
			return r.Member, nil
		case err == nil: // it is not there any more, and may come back
			err = pause(c, pollEvery)
		}
		if err != nil {
			return nil, fmt.Errorf("waiting for the worker of rank %d of %d: %w", rank, ms.Me.World, err)
		}
	}
}

// readAll waits for the records of all workers of a static world.
func (ms *Members) readAll(c context.Context) ([]*roster.Member, error) {
	c, stop := context.WithCancelCause(c)
	defer stop(nil)
	records := make([]*roster.Member, ms.Me.World)
	err := parallel(ms.Me.World, func(rank int) (err error) {
		records[rank], err = ms.member(c, rank, 0)
		if err != nil && c.Err() == nil {
			stop(err)
		}
		return err
	})
	if cause := context.Cause(c); err != nil && cause != nil && !errors.Is(err, context.DeadlineExceeded) {
		err = cause
	}
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, ms.missing(records))
	}
	return records, nil
}

// missing names the ranks that have not come, as far as the store tells.
func (ms *Members) missing(records []*roster.Member) string {
	c, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var names []string
	for rank, m := range records {
		if m == nil {
			if r, err := ms.Registry.recordOf(c, rank); err == nil && (r.Member == nil || r.lost) {
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
func (ms *Members) linkUp(c context.Context, records []*roster.Member, v voucher) error {
	if at, bounded := c.Deadline(); bounded && ms.Me.World > 0 { // what is left after half of the time is for who comes in a lost one's place
		ms.endure(time.Now().Add(time.Until(at) / 2))
		defer ms.endure(time.Time{})
	}
	ms.Event(func(r *roster.Roster) {
		for _, m := range records {
			_ = r.Hear(*m) // where it is older than what a namesake wrote, that one is there
		}
	})
	close(ms.ready)
	if v.link != nil {
		if p := ms.PeerAt(v.member.Rank); p == nil || p.Node.Epoch != v.member.Incarnation || ms.introduce(c, p, v.link) != nil {
			ms.giveUp(v.link)
		}
	}
	var fingers []*Peer
	ms.Event(func(r *roster.Roster) {
		r.Start()
		for _, rank := range r.Fingers() {
			fingers = append(fingers, ms.peers[rank])
		}
	})
	ms.dialInTurn(fingers)
	return ms.awaitLinks(c, fingers)
}

// endure says until when a dial that fails is no loss.
func (ms *Members) endure(until time.Time) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.patience = until
}

// awaitLinks waits for links. In a static world, who is lost meanwhile is awaited in its next life.
func (ms *Members) awaitLinks(c context.Context, with []*Peer) error {
	for _, p := range with {
		for {
			if err := ms.await(c, func() bool { return p.link != nil || p.gone != nil }); err != nil {
				return fmt.Errorf("no link with %s: %w", ms.unlinkedOf(with), err)
			}
			if p.Lost() == nil || ms.Me.World == 0 {
				break
			}
			m, err := ms.member(c, p.Rank, p.Node.Epoch)
			if err != nil {
				return errors.Join(p.Lost(), err)
			}
			if err := checkMaps([]*roster.Member{&ms.Me, m}, false); err != nil {
				return err
			}
			ms.Event(func(r *roster.Roster) { _ = r.Hear(*m) })
			if p = ms.PeerAt(p.Rank); p.Lost() == nil {
				ms.dialInTurn([]*Peer{p})
			}
		}
	}
	return nil
}

func (ms *Members) unlinkedOf(with []*Peer) []string {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	var names []string
	for _, p := range with {
		if p.link == nil {
			names = append(names, p.Name)
		}
	}
	return names
}
