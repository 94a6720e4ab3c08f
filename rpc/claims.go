package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/roster"
	"github.com/weft-project/weft/transport"
)

// What is in the store, under keyPrefix: rank/R holds the record of the worker that has rank R,
// name/N who has the name N; both are taken by compare-and-set. Where somebody has lost that worker
// its claim is marked: then it is free, unless the worker answers after all. joins counts all
// joinings for ever, and ranks bounds the ranks of a dynamic world.
const (
	keyPrefix = "weft/rpc/"
	keyJoins  = keyPrefix + "joins"
	keyRanks  = keyPrefix + "ranks"
)

func rankKey(rank int) string    { return fmt.Sprintf("%srank/%d", keyPrefix, rank) }
func nameKey(name string) string { return keyPrefix + "name/" + name }

// going is what a claim holds while its worker takes it back.
const going = "-"

// lostMark precedes the claims of a worker that another has lost.
const lostMark = "!"

// claim is a key that this worker has taken, and what it holds.
type claim struct{ key, value string }

// nameClaim is what the key of a name holds: the rank, the incarnation, the address.
func nameClaim(m *roster.Member) string {
	return fmt.Sprintf("%d/%d/%s", m.Rank, m.Incarnation, m.Addr)
}

func parseNameClaim(s string) (rank int, incarnation uint64, addr string, err error) {
	parts := strings.SplitN(s, "/", 3)
	if len(parts) == 3 {
		rank, err = strconv.Atoi(parts[0])
		if err == nil {
			incarnation, err = strconv.ParseUint(parts[1], 10, 64)
		}
		addr = parts[2]
	}
	if len(parts) != 3 || err != nil {
		return 0, 0, "", fmt.Errorf("%w: %q is no claim of a name", ErrProtocol, s)
	}
	return rank, incarnation, addr, nil
}

// newIncarnation draws a number that grows with every joining; its low half keeps apart what a
// store that was emptied counts twice.
func (w *Worker) newIncarnation(c context.Context) (uint64, error) {
	n, err := w.store.Add(c, keyJoins, 1)
	return uint64(n)<<32 | uint64(rand.Uint32()), err
}

// firstID is where the ids of passes begin in a life, so that they do not meet those of the life
// before at the same rank.
func firstID(incarnation uint64) uint64 { return incarnation >> 32 & 0xffff << 32 }

// ofLife says whether a pass can have been opened in that life. Many more ids than fit between two
// lives may have been drawn in it.
func ofLife(id, incarnation uint64) bool { return (id-firstID(incarnation))>>32&0xffff < 1<<12 }

// peek reads a key without waiting; empty where there is none.
func (w *Worker) peek(c context.Context, key string) (string, error) {
	const never = "\x00"
	have, err := w.store.CompareSet(c, key, []byte(never), []byte(never))
	if err != nil || string(have) == never || string(have) == going {
		return "", err
	}
	return string(have), nil
}

// pollEvery is how often is looked for a claim that its holder, or who has lost it, is to give up.
const pollEvery = 50 * time.Millisecond

// pause waits for d, and fails where c ends first.
func pause(c context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.Done():
		return context.Cause(c)
	}
}

// take claims a key. Where its holder answers at its address the key is taken; where it does not,
// it is about to be declared lost by those that had a link with it.
func (w *Worker) take(c context.Context, key, value string, addr func(have string) (string, error), taken func(have string) error) error {
	expected, mute := "", "" // mute is an address where nobody answered
	for {
		raw, err := w.store.CompareSet(c, key, []byte(expected), []byte(value))
		if err != nil {
			return err
		}
		if string(raw) == value {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.claims = append(w.claims, claim{key, value})
			return nil
		}
		have, lost := strings.CutPrefix(string(raw), lostMark)
		if have != going && have != "" {
			at, err := addr(have)
			if err != nil {
				return err
			}
			if !(lost && at == mute) && w.answers(c, at) {
				return taken(have)
			}
			mute = at
		}
		if expected = ""; lost {
			expected = string(raw)
			continue
		}
		if err := pause(c, pollEvery); err != nil {
			return fmt.Errorf("%w; it does not answer, but nobody has declared it lost: %w", taken(have), err)
		}
	}
}

// lookTimeout is how long the holder of a claim has to answer. One that was given up for lost has
// no longer; of any other it is found out again and again.
const lookTimeout = time.Second

// answers says whether somebody listens at an address.
func (w *Worker) answers(c context.Context, addr string) bool {
	c, cancel := context.WithTimeout(c, lookTimeout)
	defer cancel()
	link, err := w.net.Dial(c, addr)
	if err == nil {
		_ = link.Close("only looked")
	}
	return err == nil || errors.Is(err, transport.ErrIdentity) || errors.Is(err, transport.ErrBusy)
}

func recordAddr(have string) (string, error) {
	var m roster.Member
	err := wire.Decode([]byte(have), &m)
	return m.Addr, err
}

func nameAddr(have string) (string, error) {
	_, _, addr, err := parseNameClaim(have)
	return addr, err
}

func (w *Worker) takeName(c context.Context, me *roster.Member) error {
	return w.take(c, nameKey(me.Name), nameClaim(me), nameAddr, func(have string) error {
		rank, _, _, _ := parseNameClaim(have)
		return fmt.Errorf("%w: %q by the worker of rank %d", ErrNameTaken, me.Name, rank)
	})
}

func (w *Worker) takeRank(c context.Context, me *roster.Member) error {
	raw, err := wire.Encode(me)
	if err != nil {
		return err
	}
	return w.take(c, rankKey(me.Rank), string(raw), recordAddr, rankTaken)
}

func rankTaken(have string) error {
	var m roster.Member
	if err := wire.Decode([]byte(have), &m); err != nil {
		return err
	}
	return fmt.Errorf("%w: %d, by %s at %s", ErrRankTaken, m.Rank, m.Name, m.Addr)
}

// claimStatic takes the name and the rank. It prefers to report a taken rank: a worker started
// twice has both.
func (w *Worker) claimStatic(c context.Context, me *roster.Member) error {
	err := w.takeName(c, me)
	if err == nil {
		return w.takeRank(c, me)
	}
	if r, perr := w.recordOf(c, me.Rank); perr == nil && r.Member != nil && !r.lost && errors.Is(err, ErrNameTaken) {
		return rankTaken(r.raw)
	}
	return err
}

// found is what the store has of a rank.
type found struct {
	*roster.Member        // nil where nobody has it
	lost           bool   // somebody has lost it
	raw            string // as it is in the store
}

// recordOf reads the record of a rank without waiting.
func (w *Worker) recordOf(c context.Context, rank int) (r found, err error) {
	if r.raw, err = w.peek(c, rankKey(rank)); err != nil || r.raw == "" {
		return r, err
	}
	var text string
	text, r.lost = strings.CutPrefix(r.raw, lostMark)
	m, err := parseRecord([]byte(text), rank)
	r.Member = m
	return r, err
}

// proven refuses a life that would take the place of one that this worker knows, by rank or by
// name, unless the store has it at its rank. Whoever claims a place leaves it there first; a
// greeting and news are words of members, any of whom could say so.
func (w *Worker) proven(c context.Context, m *roster.Member) error {
	if !w.replaces(m) {
		return nil
	}
	c, cancel := context.WithTimeout(c, lookupTimeout)
	defer cancel()
	r, err := w.recordOf(c, m.Rank)
	switch {
	case err != nil:
		return fmt.Errorf("%s of rank %d comes in the place of another, which the store does not confirm: %w", m.Name, m.Rank, err)
	case r.Member == nil:
		return fmt.Errorf("%s of rank %d comes in the place of another, but the store has nobody at that rank", m.Name, m.Rank)
	case r.Name != m.Name || r.Incarnation != m.Incarnation || r.Addr != m.Addr:
		return fmt.Errorf("%s of rank %d comes in the place of another, but the store has another life at that rank, %s at %q", m.Name, m.Rank, r.Name, r.Addr)
	}
	return nil
}

// replaces says whether a life is another than this worker knows at its rank or under its name, and
// not an older one.
func (w *Worker) replaces(m *roster.Member) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range []*peer{w.peers[m.Rank], w.byName[m.Name]} {
		if p != nil && p.node.Epoch <= m.Incarnation && (p.node.Epoch != m.Incarnation || p.rank != m.Rank || p.name != m.Name) {
			return true
		}
	}
	return false
}

func parseRecord(raw []byte, rank int) (*roster.Member, error) {
	m := &roster.Member{}
	if err := wire.Decode(raw, m); err != nil {
		return nil, fmt.Errorf("record of rank %d: %w", rank, err)
	}
	if err := checkMember(m); err != nil || m.Rank != rank {
		return nil, fmt.Errorf("%w: the record of rank %d is of %q, rank %d", ErrProtocol, rank, bounded(m.Name, maxStatusText), m.Rank)
	}
	return m, nil
}

// checkMember refuses what cannot be a worker.
func checkMember(m *roster.Member) error {
	if !nameRule.MatchString(m.Name) || m.Rank < 0 || m.Rank >= maxWorld || len(m.Addr) > 512 || len(m.Devices) > 1<<10 || len(m.Maps) > maxWorld {
		return fmt.Errorf("%w: no worker can be %q of rank %d", ErrProtocol, m.Name, m.Rank)
	}
	return nil
}

// scan reads the records of a dynamic world: who is there, and who was lost, as far as somebody
// said so.
func (w *Worker) scan(c context.Context) (there, lost []*roster.Member, err error) {
	n, err := w.store.Add(c, keyRanks, 0)
	if err != nil {
		return nil, nil, err
	}
	all := make([]found, min(max(n, 0), maxWorld))
	err = parallel(len(all), func(rank int) (err error) { all[rank], err = w.recordOf(c, rank); return err })
	for _, r := range all {
		if r.Member != nil && r.lost {
			lost = append(lost, r.Member)
		} else if r.Member != nil {
			there = append(there, r.Member)
		}
	}
	return there, lost, err
}

// storeLanes is how many requests a worker has at the store at a time.
const storeLanes = 8

// parallel calls do for 0 to n-1, several at a time, and gives the first error.
func parallel(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	next := make(chan int)
	for range min(n, storeLanes) {
		wg.Go(func() {
			for i := range next {
				errs[i] = do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// bury marks the claims of a lost life, so that the worker can come back; also where this worker
// ends because of that loss, as then nobody else might. The store may be gone with the lost.
func (w *Worker) bury(m roster.Member) {
	c, cancel := context.WithTimeout(context.WithoutCancel(w.life), helloTimeout)
	defer cancel()
	defer context.AfterFunc(w.life, func() { time.AfterFunc(time.Second, cancel) })()
	r, err := w.recordOf(c, m.Rank)
	if err == nil && r.Member != nil && r.Incarnation == m.Incarnation && !r.lost {
		_, err = w.store.CompareSet(c, rankKey(m.Rank), []byte(r.raw), []byte(lostMark+r.raw))
	}
	if name := nameClaim(&m); err == nil {
		_, err = w.store.CompareSet(c, nameKey(m.Name), []byte(name), []byte(lostMark+name))
	}
	if err != nil && w.life.Err() == nil {
		w.log.Debug("could not free the place of a lost worker", "worker", w.name, "peer", m.Name, "err", err)
	}
}

// unclaim takes this worker's keys out of the store, where they are still its own, so that another
// can have its place.
func (w *Worker) unclaim() {
	c, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.mu.Lock()
	claims := w.claims
	w.claims = nil
	w.mu.Unlock()
	for _, k := range claims {
		have, err := w.store.CompareSet(c, k.key, []byte(k.value), []byte(going))
		if err == nil && string(have) == lostMark+k.value { // somebody has lost this worker, and nobody has come in its place
			have, err = w.store.CompareSet(c, k.key, have, []byte(going))
		}
		if err == nil && string(have) == going { // whoever wants the key waits until it is gone
			_, err = w.store.Delete(c, k.key)
		}
		if err != nil {
			w.log.Debug("could not take a key out of the store", "key", k.key, "err", err)
			return // the store is gone with its job
		}
	}
}
