package journal

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// count is the owner of a journal in tests: record n follows record n-1, and "=n" stands for all
// until n.
type count struct{ n int }

func (c *count) replay(record []byte) error {
	text := strings.TrimRight(string(record), ".")
	if snapshot, ok := strings.CutPrefix(text, "="); ok {
		if c.n != 0 {
			return fmt.Errorf("a snapshot after %d records", c.n)
		}
		n, err := strconv.Atoi(snapshot)
		c.n = n
		return err
	}
	if text != strconv.Itoa(c.n+1) {
		return fmt.Errorf("%q follows %d", text, c.n)
	}
	c.n++
	return nil
}

func record(n int) []byte { return []byte(strconv.Itoa(n) + strings.Repeat(".", n%7)) }

// life is what a process does with the journal until the disk stops it. It returns the last record
// that was appended and the last that was committed.
func life(d *fake, cfg Config) (appended, committed int, err error) {
	cfg.disk = d
	var before count
	j, err := Open("/dir/journal", cfg, before.replay)
	if err != nil {
		return before.n, 0, err
	}
	appended, committed = before.n, before.n
	add := func(n int) {
		var seq uint64
		for range n {
			appended++
			seq = j.Append(record(appended))
		}
		if err = j.Commit(seq); err == nil {
			committed = appended
		}
	}
	for _, n := range []int{1, 3, 1} {
		if add(n); err != nil {
			return appended, committed, err
		}
	}
	appended++
	j.Append(record(appended)) // is in the snapshot before it is in the file
	err = j.Compact(func(mark func()) iter.Seq[[]byte] {
		mark()
		all := appended
		return func(yield func([]byte) bool) {
			appended++
			j.Append(record(appended)) // comes after it
			if !yield(fmt.Appendf(nil, "=%d", all)) {
				return
			}
			add(2)
			d.syncing = func() { // when the compaction believes that it has copied all
				d.syncing = nil
				add(1)
			}
		}
	})
	d.syncing = nil
	if err == nil {
		add(2)
	}
	if err == nil {
		err = j.Close()
	}
	return appended, committed, err
}

// aftermath is what a disk may be after a crash.
func aftermath(d *fake, try func(what string, left *fake)) {
	try("killed", d.killed())
	r := rand.New(rand.NewPCG(1, uint64(len(d.order))))
	for renames := range len(d.order) + 1 {
		for _, how := range []struct {
			name string
			keep func(synced, data []byte) []byte
		}{
			{"nothing unsynced", func(synced, _ []byte) []byte { return slices.Clone(synced) }},
			{"everything", func(_, data []byte) []byte { return slices.Clone(data) }},
			{"the new length, and zeros", func(synced, data []byte) []byte {
				return append(slices.Clone(synced), make([]byte, max(0, len(data)-len(synced)))...)
			}},
			{"some blocks", func(synced, data []byte) []byte { return blocks(r, synced, data) }},
		} {
			try(fmt.Sprintf("%d names and %s", renames, how.name), d.lost(renames, how.keep))
		}
	}
}

// blocks takes some blocks of 8 bytes from data and the others from synced.
func blocks(r *rand.Rand, synced, data []byte) []byte {
	out := append(slices.Clone(synced), make([]byte, max(0, len(data)-len(synced)))...)
	for at := 0; at < len(data); at += 8 {
		if r.IntN(2) == 0 {
			copy(out[at:min(at+8, len(out))], data[at:min(at+8, len(data))])
		}
	}
	return out
}

// TestAfterACrashAtAnyByteThereIsAPrefixWithAllThatWasCommitted also crashes the second life, which
// begins with what the first one left.
func TestAfterACrashAtAnyByteThereIsAPrefixWithAllThatWasCommitted(t *testing.T) {
	crashes, finished := 0, false
	for budget := 0; !finished; budget++ {
		d := newFake()
		d.budget = budget
		appended, committed, err := life(d, Config{})
		if finished = err == nil; !finished {
			require.ErrorIs(t, err, errCrash)
		}
		aftermath(d, func(what string, left *fake) {
			var seen count
			j, err := Open("/dir/journal", Config{disk: left}, seen.replay)
			require.NoError(t, err, "crash after %d steps, %s", budget, what)
			require.GreaterOrEqual(t, seen.n, committed, "crash after %d steps, %s", budget, what)
			require.LessOrEqual(t, seen.n, appended, "crash after %d steps, %s", budget, what)
			require.NoError(t, j.Close())
			crashes++
		})
	}
	require.Greater(t, crashes, 1500)
}

func TestLivesThatCrashAtRandomLoseNothingThatWasCommitted(t *testing.T) {
	for seed := range soak.Cases(100) {
		r := rand.New(rand.NewPCG(2, uint64(seed)))
		d, safe := newFake(), 0
		for range 10 {
			d.budget = r.IntN(400)
			appended, committed, err := life(d, Config{})
			safe = max(safe, committed)
			if err == nil {
				d = d.killed()
				continue
			}
			require.ErrorIs(t, err, errCrash)
			var all []*fake
			aftermath(d, func(_ string, left *fake) { all = append(all, left) })
			d = all[r.IntN(len(all))]
			var seen count
			j, err := Open("/dir/journal", Config{disk: d}, seen.replay)
			require.NoError(t, err, "seed %d", seed)
			require.NoError(t, j.Close())
			require.GreaterOrEqual(t, seen.n, safe, "seed %d", seed)
			require.LessOrEqual(t, seen.n, max(appended, safe), "seed %d", seed)
			safe = seen.n // what was replayed once stays
		}
	}
}

// With other policies, what was committed outlives the process, and a crash of the machine leaves a
// prefix where the file system writes in order.
func TestAKilledProcessLosesNothingThatWasCommittedWhateverThePolicy(t *testing.T) {
	finished := false
	for budget := 0; !finished; budget++ {
		d := newFake()
		d.budget = budget
		appended, committed, err := life(d, Config{Sync: Never})
		if finished = err == nil; !finished {
			require.ErrorIs(t, err, errCrash)
		}
		var seen count
		j, err := Open("/dir/journal", Config{disk: d.killed()}, seen.replay)
		require.NoError(t, err, "crash after %d steps", budget)
		require.NoError(t, j.Close())
		require.GreaterOrEqual(t, seen.n, committed)
		require.LessOrEqual(t, seen.n, appended)
	}
}

// A step that fails, a write of part of the bytes among them, ends the journal or the compaction,
// and what was committed until then is there.
func TestAnErrorOfTheDiskIsFinalAndAcknowledgesNothing(t *testing.T) {
	full := fmt.Errorf("no space left on device")
	finals := 0
	for budget := 0; ; budget++ {
		d := newFake()
		d.budget, d.fail = budget, full
		appended, committed, err := life(d, Config{})
		if d.budget >= 0 { // all steps were done
			require.NoError(t, err)
			break
		}
		if err != nil { // not so where a leftover could not be removed, which Open does anyway
			require.ErrorIs(t, err, full, "step %d", budget)
			require.ErrorContains(t, err, "/dir/journal", "step %d", budget)
			finals++
		}
		var seen count
		j, err := Open("/dir/journal", Config{disk: d.killed()}, seen.replay)
		require.NoError(t, err, "step %d", budget)
		require.NoError(t, j.Close())
		require.GreaterOrEqual(t, seen.n, committed, "step %d", budget)
		require.LessOrEqual(t, seen.n, appended, "step %d", budget)
	}
	require.Greater(t, finals, 100)
}

func TestAfterAFailureEveryCommitFailsWithItAndNothingIsWritten(t *testing.T) {
	full := fmt.Errorf("no space left on device")
	d := newFake()
	j, err := Open("/dir/journal", Config{disk: d}, nil)
	require.NoError(t, err)
	require.NoError(t, j.Commit(j.Append([]byte("kept"))))
	d.budget, d.fail = 5, full // less than a frame's head
	lost := j.Append([]byte("lost"))
	require.ErrorIs(t, j.Commit(lost), full)
	size := len(d.names["/dir/journal"].data)
	require.ErrorIs(t, j.Commit(j.Append([]byte("after"))), full)
	require.NoError(t, j.Commit(1), "what was safe remains so")
	require.ErrorIs(t, j.Err(), full)
	require.False(t, j.Due(0))
	require.ErrorIs(t, j.Compact(nil), full)
	require.ErrorIs(t, j.Close(), full)
	require.Len(t, d.names["/dir/journal"].data, size)
	require.NoError(t, j.Close(), "twice")
}

// A failed compaction leaves the journal as it was, and it is not tried again at once.
func TestACompactionThatFailsHarmsNothing(t *testing.T) {
	full := fmt.Errorf("no space left on device")
	d := newFake()
	j, err := Open("/dir/journal", Config{disk: d}, nil)
	require.NoError(t, err)
	require.NoError(t, j.Commit(j.Append(bytes.Repeat([]byte("x"), 2<<20))))
	require.True(t, j.Due(0))
	d.budget, d.fail = 30, full
	err = j.Compact(func(mark func()) iter.Seq[[]byte] {
		mark()
		return slices.Values([][]byte{[]byte("snapshot of more than thirty bytes")})
	})
	require.ErrorIs(t, err, full)
	require.NoError(t, j.Err())
	require.False(t, j.Due(0), "the disk is full: not at once again")
	require.NotContains(t, d.names, "/dir/journal.new")
	require.NoError(t, j.Commit(j.Append(bytes.Repeat([]byte("y"), 3<<20))))
	require.True(t, j.Due(0))
	require.NoError(t, j.Close())
	var sizes []int
	j, err = Open("/dir/journal", Config{disk: d.killed()}, func(r []byte) error { sizes = append(sizes, len(r)); return nil })
	require.NoError(t, err)
	require.NoError(t, j.Close())
	require.Equal(t, []int{2 << 20, 3 << 20}, sizes)
}
