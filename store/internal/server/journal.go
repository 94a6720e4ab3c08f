package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/wire"
	"github.com/weft-project/weft/store/journal"
)

// JournalConfig says where a server keeps what it has to know after a crash. The zero value keeps
// nothing. Whatever anybody has heard of a change is in the journal first, and a server started
// anew with that file has it. Clients connect again, and their waits go on. Who waited or watched
// is not in it.
type JournalConfig struct {
	Path   string         // of the file, which is made if it does not exist
	Sync   journal.Policy // when a change is brought to the disk: by default before anybody hears of it
	Growth int            // the file is compacted when it is so many times as large as what it keeps; 0 means 4, less never
}

// keeper is a server's journal. Its records are the changes that its states note, as commands on
// the wire of Dialect22, with a mark in front of the guests'.
//
// Every reply, that to a reading among them, is written after all changes made before it are as
// safe as the policy asks: what anybody has heard of is not lost. When the journal fails, nobody
// hears anything more but the error.
type keeper struct {
	ledger
	last    uint64 // the number of the last record
	grown   int    // bytes since it was asked whether a compaction is due
	scratch []byte
}

// ledger is what a keeper needs of a journal.
type ledger interface {
	Append(record []byte) uint64
	Commit(seq uint64) error
	Err() error
	Failed() <-chan struct{}
	Due(live int64) bool
	Compact(take func(mark func()) iter.Seq[[]byte]) error
	Size() int64
	Close() error
}

const (
	askEvery  = 1 << 20  // bytes of records
	scratchTo = 64 << 10 // a larger buffer is not kept
)

// keeps is the wire of the records.
var keeps = wire.Protocol{Dialect: wire.Dialect22}

// openJournal replays what an earlier server has kept, whatever that one's limits were, and keeps
// what changes from now on.
func (s *Server) openJournal() error {
	cfg := s.cfg.Journal
	if cfg.Path == "" {
		return nil
	}
	r := newReplayer(s.members.state, s.guests.state)
	s.members.state.Limits, s.guests.state.Limits = r.in.Limits, r.in.Limits
	j, err := journal.Open(cfg.Path, journal.Config{Sync: cfg.Sync, Growth: cfg.Growth, Logger: s.cfg.Logger}, r.replay)
	if errors.Is(err, journal.ErrCorrupt) {
		return fmt.Errorf("%w: %w", kv.ErrCorrupt, err)
	}
	if err != nil {
		return err
	}
	for _, sp := range []*space{&s.members, &s.guests} {
		sp.state.Limits = s.limits
		if held := sp.state.Stats().Bytes; held > s.limits.Memory {
			s.cfg.Logger.Warn("store has more in its journal than it may hold, and takes nothing more", "bytes", held, "limit", s.limits.Memory)
		}
	}
	s.keep(j)
	return nil
}

// keep writes what changes from now on to a journal.
func (s *Server) keep(l ledger) {
	s.keeper = &keeper{ledger: l}
	for _, sp := range []*space{&s.members, &s.guests} {
		sp.state.Changed = func(cmd state.Command) { s.keeper.keep(sp.mark, cmd) }
	}
}

// replayer does what the records say.
type replayer struct {
	members *state.State
	guests  *state.State
	in      *wire.Decoder
	record  bytes.Reader
	replies []state.Reply
}

func newReplayer(members, guests *state.State) *replayer {
	const most = math.MaxInt / 64 // of it, some multiples are taken
	in := &wire.Decoder{Protocol: keeps, Reader: bufio.NewReader(nil), Limits: kv.Limits{Key: most, Value: most, Keys: most, Memory: most}}
	return &replayer{members: members, guests: guests, in: in}
}

func (r *replayer) replay(record []byte) error {
	state := r.members
	if rest, theirs := bytes.CutPrefix(record, []byte{guestsRecord}); theirs {
		state, record = r.guests, rest
	}
	r.record.Reset(record)
	r.in.Reader.Reset(&r.record)
	cmd, err := r.in.Command()
	if err == nil && r.in.Reader.Buffered()+r.record.Len() > 0 {
		err = fmt.Errorf("%w: a %v has bytes behind it", kv.ErrProtocol, cmd.Op)
	}
	if err != nil {
		return fmt.Errorf("%w: the record is no command: %w", kv.ErrCorrupt, err)
	}
	r.replies = state.Apply(0, cmd, r.replies[:0])
	for _, answer := range r.replies {
		if answer.Err != nil {
			return fmt.Errorf("%w: the record's %v fails: %w", kv.ErrCorrupt, cmd.Op, answer.Err)
		}
	}
	clear(r.replies)
	return nil
}

// keep appends a change. The server's lock is held.
func (k *keeper) keep(mark []byte, cmd state.Command) {
	k.scratch, _ = keeps.AppendCommand(append(k.scratch[:0], mark...), cmd) // it has a word for every change
	k.last = k.Append(k.scratch)
	k.grown += len(k.scratch)
	if cap(k.scratch) > scratchTo {
		k.scratch = nil
	}
}

// due says whether to compact where the state holds so many bytes. It asks rarely.
func (k *keeper) due(held int) bool {
	if k.grown < askEvery {
		return false
	}
	k.grown = 0
	return k.Due(int64(held))
}

// Failed is closed when the journal can no longer be written, and the server therefore answers with
// that error only, or when the server is closed. Without a journal it is nil.
func (s *Server) Failed() <-chan struct{} {
	if s.keeper == nil {
		return nil
	}
	return s.keeper.Failed()
}

// Err is why the journal failed, or nil.
func (s *Server) Err() error {
	if s.keeper == nil {
		return nil
	}
	return s.keeper.Err()
}

// committed returns when what a reply depends on is safe, or says why it will not be.
func (s *Server) committed(after uint64) error {
	if s.keeper == nil || after == 0 {
		return nil
	}
	err := s.keeper.Commit(after)
	if err != nil {
		s.lost.Do(func() { s.cfg.Logger.Error("store answers no more, as it cannot write its journal", "err", err) })
	}
	return err
}

// compact makes the journal as short as what is held.
func (s *Server) compact() {
	before := s.keeper.Size()
	err := s.keeper.Compact(func(mark func()) iter.Seq[[]byte] {
		s.mu.Lock()
		defer s.mu.Unlock()
		mark()
		return records(&s.members, &s.guests)
	})
	if errors.Is(err, journal.ErrClosed) {
		return
	}
	if err != nil {
		s.cfg.Logger.Warn("store cannot compact its journal, which grows on", "err", err)
		return
	}
	s.cfg.Logger.Info("store has compacted its journal", "path", s.cfg.Journal.Path, "bytes", s.keeper.Size(), "before", before)
}

// records is what spaces hold now, as records; they are made later.
func records(spaces ...*space) iter.Seq[[]byte] {
	type entry struct {
		mark  []byte
		op    state.Op
		key   string
		value []byte
	}
	var held []entry
	for _, sp := range spaces {
		has := sp.state.Stats()
		held = slices.Grow(held, has.Keys+has.Queues)
		for cmd := range sp.state.Snapshot() {
			held = append(held, entry{sp.mark, cmd.Op, cmd.Key, cmd.Value})
		}
	}
	return func(yield func([]byte) bool) {
		var b []byte
		for _, e := range held {
			b, _ = keeps.AppendCommand(append(b[:0], e.mark...), state.Command{Op: e.op, Key: e.key, Value: e.value})
			if !yield(b) {
				return
			}
		}
	}
}
