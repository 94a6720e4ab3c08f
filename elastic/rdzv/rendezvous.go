package rdzv

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/store"
)

// Rendezvous is a node's part in a rendezvous over a store. It is safe for concurrent use.
type Rendezvous struct {
	// News delivers what concerns this node, in its order: Place, Wait, Spare, Restart, and last
	// Refuse or Finished. It is closed when the rendezvous was left, or cannot go on; then Leave
	// says why.
	News <-chan Action
	// Bulletins delivers how things stand, whenever that changes; one that nobody takes gives way
	// to the next.
	Bulletins <-chan Summary
	// Changes delivers what becomes of other nodes and of their workers. Of many that nobody takes
	// the later ones are lost.
	Changes <-chan Change

	st    store.Store
	log   *slog.Logger
	away  *away
	asked chan struct{} // capacity 1: there is something in wants
	end   context.CancelCauseFunc
	done  chan struct{}
	err   error // of run, once done is closed

	mu     sync.Mutex
	wants  []Event // what the node has asked for and the shell has not taken
	latest Summary
	known  bool      // latest was heard
	heard  time.Time // when; before that, when it was opened
}

// Open joins the rendezvous that has its keys in st, which should be a view with a prefix of its
// own for each job, and be used for nothing else. It returns at once: what comes of it is in News.
// The store stays open when the rendezvous ends.
func Open(c context.Context, st store.Store, cfg Config, node Node, log *slog.Logger) (*Rendezvous, error) {
	cfg, err := cfg.Populate()
	if bad := node.validate(); bad != nil {
		err = errors.Join(err, bad)
	}
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c, end := context.WithCancelCause(c)
	news, bulletins, changes := make(chan Action), make(chan Summary, 1), make(chan Change, 64)
	r := &Rendezvous{News: news, Bulletins: bulletins, Changes: changes, st: st, log: log, away: &away{log: log}, asked: make(chan struct{}, 1), end: end, done: make(chan struct{}), heard: time.Now()}
	go func() {
		defer close(r.done)
		defer close(news)
		s := &shell{r: r, away: r.away, peer: newPeer(node, cfg, time.Now()), news: news, bulletins: bulletins, changes: changes}
		r.err = s.run(c)
		end(context.Canceled)
	}()
	return r, nil
}

// Fail tells that a worker of this node has failed in a round, the nth that did, and asks for leave
// to restart it: the answer is Restart, a Place in a new round, or Finished. since is 0 unless the
// worker may have given up because another was lost: then it is 1 more than the job's restarts when
// it was started, and a loss that was counted since is not counted again.
func (r *Rendezvous) Fail(round, rank, nth, since int, why string) {
	r.want(Event{Kind: Fail, Round: round, Rank: rank, Nth: nth, Since: since, Why: why})
}

// Done tells that all workers of this node have ended well in a round. The rendezvous is Finished
// when this is so on every node of the latest one.
func (r *Rendezvous) Done(round int) { r.want(Event{Kind: Done, Round: round}) }

// Close ends the rendezvous for all nodes.
func (r *Rendezvous) Close(why string) { r.want(Event{Kind: Close, Why: why}) }

// Latest is how things stood when the leader last said so; Bulletins tells only what matters to who
// has a place. It is false if none has yet.
func (r *Rendezvous) Latest() (Summary, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest, r.known
}

// Away says whether the store is out of reach: what Latest says may be long over.
func (r *Rendezvous) Away() bool { return r.away.is() }

// Heard is when the leader was last heard of, or the rendezvous was opened. A leader says something
// six times in Config.Silence.
func (r *Rendezvous) Heard() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard
}

// want never waits: the shell may be waiting for the store.
func (r *Rendezvous) want(e Event) {
	r.mu.Lock()
	r.wants = append(r.wants, e)
	r.mu.Unlock()
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

func (r *Rendezvous) wanted() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.wants
	r.wants = nil
	return out
}

// Leave takes the node out, the others go on, and returns when nothing is left of the rendezvous
// here, or c is over: then the others will find that this node is silent. It also ends one that is
// over.
func (r *Rendezvous) Leave(c context.Context, why string) error {
	stop := context.AfterFunc(c, func() { r.end(context.Cause(c)) })
	defer stop()
	r.want(Event{Kind: Leave, Why: why})
	<-r.done
	return r.err
}

// shell runs a peer: it does its operations, and brings it what comes from the store.
type shell struct {
	r         *Rendezvous
	away      *away
	peer      *peer
	news      chan<- Action
	bulletins chan Summary
	changes   chan<- Change
	left      bool
}

func (s *shell) run(c context.Context) error {
	feed := newFeed(c, s.r.st, s.away, s.peer.cfg)
	defer feed.stop()
	bulletins := feed.watch(keySummary)
	answers := feed.pop(keyTo(s.peer.node.ID), nil)
	lead := make(chan bool)
	inbox := feed.pop(keyInbox, lead)
	if err := s.performAll(c, s.peer.start()); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	leads := false // what the feed of the inbox was told last
	for {
		if s.report(); s.left {
			return nil
		}
		gate := lead
		if leads == (s.peer.role == leading) {
			gate = nil
		}
		var due <-chan time.Time
		if t := s.peer.nextTick(); !t.IsZero() {
			timer.Reset(time.Until(t))
			due = timer.C
		}
		var ops []op
		var news chan<- Action
		var next Action
		if len(s.peer.news) > 0 {
			news, next = s.news, s.peer.news[0]
		}
		select {
		case news <- next:
			s.peer.news = s.peer.news[1:]
		case <-c.Done():
			return context.Cause(c)
		case err := <-feed.broken:
			return err
		case b := <-bulletins:
			ops = s.peer.saw(b, time.Now())
		case b := <-answers:
			ops = s.peer.answered(b, time.Now())
		case b := <-inbox:
			ops = s.peer.inbox(s.batch(c, b), time.Now())
		case gate <- !leads:
			leads = !leads
		case <-s.r.asked:
			for _, e := range s.r.wanted() {
				if err := s.performAll(c, s.want(e)); err != nil {
					return err
				}
			}
		case <-due:
			ops = s.peer.tick(time.Now())
		}
		if err := s.performAll(c, ops); err != nil {
			return err
		}
	}
}

func (s *shell) want(e Event) []op {
	if e.Kind == Leave {
		s.left = true
		return s.peer.quit(e.Why, time.Now())
	}
	return s.peer.want(e)
}

// batch takes what else lies in the inbox, up to a bound. A store that falls silent meanwhile must
// not keep it: what is done next says that it is away.
func (s *shell) batch(c context.Context, first []byte) [][]byte {
	c, cancel := s.peer.cfg.promptly(c)
	defer cancel()
	out := [][]byte{first}
	for len(out) < 4096 {
		b, there, err := s.r.st.TryPop(c, keyInbox)
		if err != nil || !there {
			break // an error comes again, where it is dealt with
		}
		out = append(out, b)
	}
	return out
}

// performAll does operations, and what follows from their results.
func (s *shell) performAll(c context.Context, ops []op) error {
	for len(ops) > 0 {
		o, n := ops[0], 1
		var value []byte
		var err error
		began := time.Now()
		if answers := answersFirst(ops); answers > 1 {
			n, err = answers, s.push(c, ops[:answers])
		} else {
			value, err = s.perform(c, o)
		}
		if err != nil {
			return err
		}
		if time.Since(began) > s.peer.cfg.Silence/3 {
			s.peer.forgive(time.Now())
		}
		ops = ops[n:]
		if o.kind == opRead || o.kind == opSwap {
			more, err := s.peer.result(o, value, time.Now())
			if err != nil {
				return err
			}
			ops = append(ops, more...)
		}
	}
	return nil
}

// answersFirst is how many answers to nodes ops begin with.
func answersFirst(ops []op) int {
	n := slices.IndexFunc(ops, func(o op) bool { return o.kind != opPush || o.key == keyInbox })
	if n < 0 {
		return len(ops)
	}
	return n
}

// lanes is how many answers are on their way at a time: a leader that waits for each would take a
// round trip for every node.
const lanes = 8

// push does pushes to nodes, several at a time, and those to one node in their order.
func (s *shell) push(c context.Context, answers []op) error {
	var lane [lanes][]op
	seed := maphash.MakeSeed()
	for _, o := range answers {
		i := maphash.String(seed, o.key) % lanes
		lane[i] = append(lane[i], o)
	}
	var errs [lanes]error
	var runs sync.WaitGroup
	for i, ops := range lane {
		runs.Go(func() {
			for _, o := range ops {
				if _, err := s.perform(c, o); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	runs.Wait()
	return errors.Join(errs[:]...)
}

// perform does one operation, again and again while the store cannot be reached, for a while.
func (s *shell) perform(c context.Context, o op) ([]byte, error) {
	var value []byte
	err := insist(c, s.away, s.peer.cfg, o.key, func(c context.Context) (err error) {
		st := s.r.st
		switch o.kind {
		case opRead:
			value, err = read(c, st, o.key)
		case opSwap:
			value, err = st.CompareSet(c, o.key, o.old, o.new)
			if errors.Is(err, store.ErrUncertain) {
				value, err = read(c, st, o.key) // no two peers ever write the same, so it tells whether it was done
				if err == nil && string(value) == string(o.old) {
					value, err = st.CompareSet(c, o.key, o.old, o.new)
				}
			}
		case opSet:
			err = st.Set(c, o.key, o.new)
		case opDelete:
			_, err = st.Delete(c, o.key)
		case opPush: // once more does no harm
			err = st.Push(c, o.key, o.new)
		}
		return err
	})
	return value, err
}

// read is the value of a key now, nil where there is none.
func read(c context.Context, st store.Store, key string) ([]byte, error) {
	there, err := st.Check(c, key)
	if err != nil || !there {
		return nil, err
	}
	return st.Get(c, key)
}

// report hands on how things stand, and logs why.
func (s *shell) report() {
	p := s.peer
	for _, why := range p.reasons {
		s.r.log.Info("rendezvous", "node", p.node.ID, "term", p.lease.Term, "event", why)
	}
	for _, what := range p.alarms {
		s.r.log.Warn("the rendezvous: "+what, "node", p.node.ID)
	}
	for _, c := range p.changes {
		select {
		case s.changes <- c:
		default:
		}
	}
	p.reasons, p.alarms, p.changes = nil, nil, nil
	s.r.mu.Lock()
	s.r.latest, s.r.known = p.beat.Summary, p.beat.Term > 0
	if p.beatAt.After(s.r.heard) {
		s.r.heard = p.beatAt
	}
	s.r.mu.Unlock()
	if p.beat.Term > 0 && p.beat.Summary.Epoch != p.epoch {
		p.epoch = p.beat.Summary.Epoch
		select {
		case <-s.bulletins:
		default:
		}
		s.bulletins <- p.beat.Summary
	}
}
