package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-project/weft/internal/printable"
	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// What is in the store, under keyPrefix: rank/R holds the record of the worker that has rank R,
// name/N who has the name N; both are taken by compare-and-set. Where somebody has lost that worker
// its claim is marked: then it is free, unless the worker answers after all. joins counts all
// joinings for ever; ranks bounds the ranks of a dynamic world, and left has the last of its
// joinings of which the worker has left.
const (
	KeyPrefix = "weft/rpc/"
	keyJoins  = KeyPrefix + "joins"
	keyRanks  = KeyPrefix + "ranks"
	keyLeft   = KeyPrefix + "left"
)

// RankKey is where the store has the worker of a rank.
func RankKey(rank int) string    { return fmt.Sprintf("%srank/%d", KeyPrefix, rank) }
func nameKey(name string) string { return KeyPrefix + "name/" + name }

// Going is what a claim holds while its worker takes it back.
const Going = "-"

// LostMark precedes the claims of a worker that another has lost.
const LostMark = "!"

// Registry is a worker's part in the job's store: what it has claimed there, and what it reads of
// the others.
type Registry struct {
	Store store.Store
	net   transport.Network // to see whether who has a claim answers
	log   *slog.Logger
	life  context.Context // the worker's

	mu      sync.Mutex
	claims  []claim // keys of this worker in the store
	joining uint64  // the number of this worker's in a dynamic world
}

// NewRegistry makes the part of a worker in a store; life is the worker's.
func NewRegistry(life context.Context, st store.Store, net transport.Network, log *slog.Logger) *Registry {
	return &Registry{Store: st, net: net, log: log, life: life}
}

// MaxWorld bounds the ranks: they have 16 bits in the ids of passes.
const MaxWorld = 1 << 16

// NameRule is what names of workers look like.
var NameRule = regexp.MustCompile(`^[A-Za-z0-9_:-]{1,127}$`)

// HelloTimeout bounds a greeting, and what is said of others.
const HelloTimeout = 5 * time.Second

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
		return 0, 0, "", fmt.Errorf("%w: %q is no claim of a name", wire.ErrProtocol, s)
	}
	return rank, incarnation, addr, nil
}

// NewIncarnation draws a number that grows with every joining; its low half keeps apart what a
// store that was emptied counts twice.
func (g *Registry) NewIncarnation(c context.Context) (uint64, error) {
	n, err := g.Store.Add(c, keyJoins, 1)
	return uint64(n)<<32 | uint64(rand.Uint32()), err
}

// peek reads a key without waiting; empty where there is none, or where its worker takes it back.
func (g *Registry) peek(c context.Context, key string) (string, error) {
	have, err := g.raw(c, key)
	if have == Going {
		have = ""
	}
	return have, err
}

// raw reads a key as it is, without waiting; empty where there is none.
func (g *Registry) raw(c context.Context, key string) (string, error) {
	const never = "\x00"
	have, err := g.Store.CompareSet(c, key, []byte(never), []byte(never))
	if err != nil || string(have) == never {
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

// errOvertaken is why a worker does not take the place of a life that is over: that one joined
// after it, so that those who knew that one would take this worker for an older life.
var errOvertaken = errors.New("a worker that joined later has been there")

// holder is who a claim is of.
type holder struct {
	addr        string
	incarnation uint64
}

// claim takes a key for a worker of that incarnation. Where its holder answers at its address the
// key is taken; where it does not, it is about to be declared lost by those that had a link with
// it.
func (g *Registry) claim(c context.Context, key, value string, incarnation uint64, of func(have string) (holder, error), taken func(have string) error) error {
	expected, mute := "", "" // mute is an address where nobody answered
	for {
		raw, err := g.Store.CompareSet(c, key, []byte(expected), []byte(value))
		if err != nil {
			return err
		}
		if string(raw) == value {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.claims = append(g.claims, claim{key, value})
			return nil
		}
		have, lost := strings.CutPrefix(string(raw), LostMark)
		if have != Going && have != "" {
			h, err := of(have)
			if err != nil {
				return err
			}
			if !(lost && h.addr == mute) && g.Answers(c, h.addr) {
				return taken(have)
			}
			if h.incarnation > incarnation {
				return fmt.Errorf("%w: %w", taken(have), errOvertaken)
			}
			mute = h.addr
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

// Answers says whether somebody listens at an address.
func (g *Registry) Answers(c context.Context, addr string) bool {
	c, cancel := context.WithTimeout(c, lookTimeout)
	defer cancel()
	link, err := g.net.Dial(c, addr)
	if err == nil {
		_ = link.Close("only looked")
	}
	return err == nil || errors.Is(err, transport.ErrIdentity) || errors.Is(err, transport.ErrBusy)
}

func rankHolder(have string) (holder, error) {
	var m roster.Member
	err := wire.Decode([]byte(have), &m)
	return holder{m.Addr, m.Incarnation}, err
}

func nameHolder(have string) (holder, error) {
	_, incarnation, addr, err := parseNameClaim(have)
	return holder{addr, incarnation}, err
}

func (g *Registry) takeName(c context.Context, me *roster.Member) error {
	return g.claim(c, nameKey(me.Name), nameClaim(me), me.Incarnation, nameHolder, func(have string) error {
		rank, _, _, _ := parseNameClaim(have)
		return fmt.Errorf("%w: %q by the worker of rank %d", ErrNameTaken, me.Name, rank)
	})
}

func (g *Registry) takeRank(c context.Context, me *roster.Member) error {
	raw, err := wire.Encode(me)
	if err != nil {
		return err
	}
	return g.claim(c, RankKey(me.Rank), string(raw), me.Incarnation, rankHolder, rankTaken)
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
func (g *Registry) claimStatic(c context.Context, me *roster.Member) error {
	err := g.takeName(c, me)
	if err == nil {
		return g.takeRank(c, me)
	}
	if r, perr := g.recordOf(c, me.Rank); perr == nil && r.Member != nil && !r.lost && errors.Is(err, ErrNameTaken) {
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
func (g *Registry) recordOf(c context.Context, rank int) (r found, err error) {
	if r.raw, err = g.peek(c, RankKey(rank)); err != nil || r.raw == "" {
		return r, err
	}
	var text string
	text, r.lost = strings.CutPrefix(r.raw, LostMark)
	m, err := parseRecord([]byte(text), rank)
	r.Member = m
	return r, err
}

func parseRecord(raw []byte, rank int) (*roster.Member, error) {
	m := &roster.Member{}
	if err := wire.Decode(raw, m); err != nil {
		return nil, fmt.Errorf("record of rank %d: %w", rank, err)
	}
	if err := checkMember(m); err != nil || m.Rank != rank {
		return nil, fmt.Errorf("%w: the record of rank %d is of %q, rank %d", wire.ErrProtocol, rank, printable.Text(m.Name, 300), m.Rank)
	}
	return m, nil
}

// checkMember refuses what cannot be a worker.
func checkMember(m *roster.Member) error {
	if !NameRule.MatchString(m.Name) || m.Rank < 0 || m.Rank >= MaxWorld || len(m.Addr) > 512 || len(m.Devices) > 1<<10 || len(m.Maps) > MaxWorld {
		return fmt.Errorf("%w: no worker can be %q of rank %d", wire.ErrProtocol, m.Name, m.Rank)
	}
	return nil
}

// scan reads the records of a dynamic world: who is there, and who was lost, as far as somebody
// said so.
func (g *Registry) scan(c context.Context) (there, lost []*roster.Member, err error) {
	n, err := g.Store.Add(c, keyRanks, 0)
	if err != nil {
		return nil, nil, err
	}
	all := make([]found, min(max(n, 0), MaxWorld))
	err = parallel(len(all), func(rank int) (err error) { all[rank], err = g.recordOf(c, rank); return err })
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
func (g *Registry) bury(m roster.Member, by string) {
	c, cancel := context.WithTimeout(context.WithoutCancel(g.life), HelloTimeout)
	defer cancel()
	defer context.AfterFunc(g.life, func() { time.AfterFunc(time.Second, cancel) })()
	r, err := g.recordOf(c, m.Rank)
	if err == nil && r.Member != nil && r.Incarnation == m.Incarnation && !r.lost {
		_, err = g.Store.CompareSet(c, RankKey(m.Rank), []byte(r.raw), []byte(LostMark+r.raw))
	}
	if name := nameClaim(&m); err == nil {
		_, err = g.Store.CompareSet(c, nameKey(m.Name), []byte(name), []byte(LostMark+name))
	}
	if err != nil && g.life.Err() == nil {
		g.log.Debug("could not free the place of a lost worker", "worker", by, "peer", m.Name, "err", err)
	}
}

// Succeed marks what the worker that had this place before has claimed, for one who was told that
// its process has ended: where all of a world have died, nobody is left who has lost it.
func (g *Registry) Succeed(c context.Context, me *roster.Member) error {
	for _, key := range []string{RankKey(me.Rank), nameKey(me.Name)} {
		have, err := g.raw(c, key)
		switch {
		case err != nil || have == "" || strings.HasPrefix(have, LostMark):
		case have == Going: // it died while it took it back
			_, err = g.Store.Delete(c, key)
		case key == RankKey(me.Rank) || strings.HasPrefix(have, fmt.Sprintf("%d/", me.Rank)): // as nameClaim has it
			_, err = g.Store.CompareSet(c, key, []byte(have), []byte(LostMark+have))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Unclaim takes this worker's keys out of the store, where they are still its own, so that another
// can have its place.
func (g *Registry) Unclaim() {
	c, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	g.mu.Lock()
	claims, joining := g.claims, g.joining
	g.claims, g.joining = nil, 0
	g.mu.Unlock()
	for _, k := range claims {
		have, err := g.Store.CompareSet(c, k.key, []byte(k.value), []byte(Going))
		if err == nil && string(have) == LostMark+k.value { // somebody has lost this worker, and nobody has come in its place
			have, err = g.Store.CompareSet(c, k.key, have, []byte(Going))
		}
		if err == nil && string(have) == Going { // whoever wants the key waits until it is gone
			if err = g.noteLeft(c, joining); err == nil {
				_, err = g.Store.Delete(c, k.key)
			}
			joining = 0
		}
		if err != nil {
			g.log.Debug("could not take a key out of the store", "key", k.key, "err", err)
			return // the store is gone with its job
		}
	}
}

// NameOf is what a worker of a rank is called to which nobody gave a name.
func NameOf(rank int) string { return fmt.Sprintf("worker%d", rank) }
