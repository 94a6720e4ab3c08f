package journal

import (
	"bytes"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/private"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
)

// reopen gives the records in path, as texts, and the journal.
func reopen(t *testing.T, path string, cfg Config) (*Journal, []string) {
	t.Helper()
	var got []string
	j, err := Open(path, cfg, func(r []byte) error { got = append(got, string(r)); return nil })
	require.NoError(t, err)
	t.Cleanup(func() { j.Close() })
	return j, got
}

// written is a journal of one frame per text, as bytes, and the offsets at which frames begin, with
// the end.
func written(t *testing.T, texts ...string) (data []byte, begins []int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := reopen(t, path, Config{Sync: Never})
	for _, text := range texts {
		begins = append(begins, int(j.Size()))
		require.NoError(t, j.Commit(j.Append([]byte(text))))
	}
	begins = append(begins, int(j.Size()))
	require.NoError(t, j.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, data, begins[len(texts)])
	return data, begins
}

// holding is a disk with one file.
func holding(path string, data []byte) *fake {
	d := newFake()
	d.names[path] = &inode{data: slices.Clone(data)}
	return d
}

func TestRecordsComeBackInTheirOrder(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "journal")
	for _, policy := range []Policy{Always, Never, Policy(time.Hour)} {
		j, before := reopen(t, path, Config{Sync: policy})
		want := before
		for i := range 100 {
			text := fmt.Sprint(policy, i, string(make([]byte, i*i)))
			want = append(want, text)
			j.Append([]byte(text))
		}
		j.Append(nil)
		want = append(want, "")
		require.NoError(t, j.Commit(j.last()))
		require.NoError(t, j.Commit(j.last()+1), "a number that nobody got is no reason to wait")
		require.NoError(t, j.Close())
		require.ErrorIs(t, j.Commit(j.Append(nil)), ErrClosed)
		require.ErrorIs(t, j.Compact(nil), ErrClosed)
		j, got := reopen(t, path, Config{Sync: policy})
		require.Equal(t, want, got)
		require.NoError(t, j.Close())
	}
}

func TestClosingWritesWhatWasAppended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := reopen(t, path, Config{})
	j.Append([]byte("a"))
	j.Append([]byte("b"))
	require.NoError(t, j.Close())
	_, got := reopen(t, path, Config{})
	require.Equal(t, []string{"a", "b"}, got)
}

func TestASecondJournalOnTheSameFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	j, _ := reopen(t, path, Config{})
	require.NoError(t, os.Symlink(path, filepath.Join(dir, "link")))
	for _, name := range []string{"journal", "link"} {
		_, err := Open(filepath.Join(dir, name), Config{}, nil)
		require.ErrorIs(t, err, ErrLocked)
		require.ErrorContains(t, err, path)
	}
	require.NoError(t, j.Compact(func(mark func()) iter.Seq[[]byte] { mark(); return slices.Values([][]byte(nil)) }))
	_, err := Open(path, Config{}, nil)
	require.ErrorIs(t, err, ErrLocked, "the compacted file is locked too")
	require.NoError(t, j.Close())
	j, err = Open(filepath.Join(dir, "link"), Config{}, nil)
	require.NoError(t, err)
	require.NoError(t, j.Close())
}

func TestWhatIsNoJournalIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"weft.example\n", "WEFTJRN\x02 some other version", "WEFTJRN\x01 and no salt and no sum"} {
		path := filepath.Join(dir, "other")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Open(path, Config{}, nil)
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorContains(t, err, "byte 0")
		left, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(left))
	}
	_, err := Open(dir, Config{}, nil)
	require.Error(t, err)
	_, err = Open("/dev/null", Config{}, nil)
	require.ErrorContains(t, err, "no regular file")
	_, err = Open(filepath.Join(dir, "none", "journal"), Config{}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAJournalIsItsUsersAloneAndOneThatOthersMayWriteToIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := Open(path, Config{}, nil)
	require.NoError(t, err)
	require.NoError(t, j.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.NoError(t, os.Chmod(path, 0o666)) //nolint:gosec // as another user would plant it
	_, err = Open(path, Config{}, nil)
	require.ErrorIs(t, err, private.ErrOthers)
	require.ErrorContains(t, err, path)
}

func TestAJournalThatOthersCanReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	for range 2 {
		j, err := Open(path, Config{}, func([]byte) error { return nil })
		require.NoError(t, err)
		require.NoError(t, j.Close())
		for _, mode := range []os.FileMode{0o640, 0o604} {
			require.NoError(t, os.Chmod(path, mode))
			_, err = Open(path, Config{}, func([]byte) error { return nil })
			require.ErrorIs(t, err, private.ErrOpen)
			require.ErrorContains(t, err, "run chmod 600 "+path)
		}
		require.NoError(t, os.Chmod(path, 0o600))
	}
}

func TestAnErrorOfTheOwnersReplayEndsOpeningAndNamesTheRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	data, _ := written(t, "a", "b")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	_, err := Open(path, Config{}, func(r []byte) error {
		if string(r) == "b" {
			return fmt.Errorf("unknown letter")
		}
		return nil
	})
	require.ErrorContains(t, err, "unknown letter")
	require.ErrorContains(t, err, "record 2")
	_, got := reopen(t, path, Config{}) // and the lock was given back
	require.Equal(t, []string{"a", "b"}, got)
}

// Whatever the length at which the file breaks off, and whatever zeros the file system put behind
// it, the whole records are replayed.
func TestATornEndIsCutOffWithALineInTheLog(t *testing.T) {
	texts := []string{"first", "second", "the third"}
	data, begins := written(t, texts...)
	const path = "/dir/journal"
	for size := range len(data) {
		for _, zeros := range []int{0, 1, 13} {
			if size <= headSize && zeros > 0 {
				continue // after the head is written and before it is synced, nothing longer can be there
			}
			d := holding(path, append(slices.Clone(data[:size]), make([]byte, zeros)...))
			var log bytes.Buffer
			j, got := reopen(t, path, Config{disk: d, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			whole, _ := slices.BinarySearch(begins, size+1)
			whole = max(0, whole-1)
			require.Equal(t, texts[:whole], append([]string{}, got...), "size %d", size)
			if torn := size + zeros - begins[whole]; torn > 0 {
				require.Contains(t, log.String(), fmt.Sprintf("offset=%d bytes=%d", begins[whole], torn))
			} else {
				require.Empty(t, log.String())
			}
			require.NoError(t, j.Commit(j.Append([]byte("?"))))
			require.NoError(t, j.Close())
			log.Reset()
			j, got = reopen(t, path, Config{disk: d, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.Empty(t, log.String(), "once")
			require.Equal(t, append(slices.Clone(texts[:whole]), "?"), got)
			require.NoError(t, j.Close())
		}
	}
}

// A changed byte anywhere is found: the file is refused where a record follows, and the frame is
// cut off where none does.
func TestADamagedMiddleIsRefusedWithItsOffset(t *testing.T) {
	texts := []string{"first", "second", "the third", "last"}
	data, begins := written(t, texts...)
	const path = "/dir/journal"
	for at := range data {
		for _, flip := range []byte{1, 0x80, data[at]} {
			if flip == 0 {
				continue
			}
			damaged := slices.Clone(data)
			damaged[at] ^= flip
			d := holding(path, damaged)
			if at >= begins[len(texts)-1] {
				j, got := reopen(t, path, Config{disk: d})
				require.Equal(t, texts[:len(texts)-1], got, "byte %d", at)
				require.NoError(t, j.Close())
				continue
			}
			_, err := Open(path, Config{disk: d}, func([]byte) error { return nil })
			var corrupt *CorruptError
			require.ErrorAs(t, err, &corrupt, "byte %d", at)
			require.ErrorIs(t, err, ErrCorrupt)
			frame := int64(0)
			for _, b := range begins {
				if b <= at {
					frame = int64(b)
				}
			}
			require.Equal(t, frame, corrupt.Offset, "byte %d", at)
			require.ErrorContains(t, err, fmt.Sprintf("byte %d", frame))
			require.Equal(t, damaged, d.names[path].data, "a damaged file is left as it is")
		}
	}
}

func TestARecordThatLooksLikeAFrameIsNone(t *testing.T) {
	data, _ := written(t, "inner", "frames")
	data, begins := written(t, string(data)+string(data[headSize:]))
	const path = "/dir/journal"
	for size := begins[0] + 1; size < len(data); size++ {
		j, got := reopen(t, path, Config{disk: holding(path, data[:size])})
		require.Empty(t, got)
		require.NoError(t, j.Close())
	}
}

func TestEightCallersOfCommitShareAnFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		d.slow = 10 * time.Millisecond
		j, err := Open("/dir/journal", Config{disk: d}, nil)
		require.NoError(t, err)
		before, start := d.synced(), time.Now()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					if err := j.Commit(j.Append([]byte("record"))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, d.synced()-before, 2*50+1, "of 400 records; who comes while one syncs waits for the next one")
		require.LessOrEqual(t, time.Since(start), (2*50+1)*d.slow)
		require.NoError(t, j.Close())
	})
}

func TestWithAnIntervalCommitDoesNotWaitForTheSyncAndItComesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		j, err := Open("/dir/journal", Config{disk: d, Sync: Policy(time.Second)}, nil)
		require.NoError(t, err)
		before := d.synced()
		for range 30 { // in 3 s
			require.NoError(t, j.Commit(j.Append([]byte("record"))))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		require.InDelta(t, 3, d.synced()-before, 1)
		before = d.synced()
		time.Sleep(time.Hour)
		require.Equal(t, before, d.synced(), "nothing to sync")
		require.NoError(t, j.Commit(j.Append([]byte("record"))))
		d.failNext(fmt.Errorf("bad disk"))
		time.Sleep(2 * time.Second)
		require.ErrorContains(t, j.Commit(j.Append([]byte("record"))), "bad disk")
		require.ErrorContains(t, j.Close(), "bad disk")
	})
}

func TestWithThePolicyNeverNothingIsSyncedButByOpeningCompactingAndClosing(t *testing.T) {
	d := newFake()
	j, err := Open("/dir/journal", Config{disk: d, Sync: Never}, nil)
	require.NoError(t, err)
	before := d.synced()
	for range 10 {
		require.NoError(t, j.Commit(j.Append([]byte("record"))))
	}
	require.Equal(t, before, d.synced())
	require.NoError(t, j.Close())
}

func TestPoliciesAreReadAsTheyAreWritten(t *testing.T) {
	for _, p := range []Policy{Always, Never, Policy(time.Second), Policy(150 * time.Millisecond)} {
		got, err := ParsePolicy(p.String())
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	for _, s := range []string{"", "sometimes", "0s", "-1s", "7"} {
		_, err := ParsePolicy(s)
		require.ErrorContains(t, err, "expected always, never or an interval")
	}
}

func TestARecordThatIsTooLargeEndsTheJournal(t *testing.T) {
	j, err := Open("/dir/journal", Config{disk: newFake(), most: 10}, nil)
	require.NoError(t, err)
	require.NoError(t, j.Commit(j.Append(make([]byte, 10))))
	err = j.Compact(func(mark func()) iter.Seq[[]byte] { mark(); return slices.Values([][]byte{make([]byte, 11)}) })
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorIs(t, j.Commit(j.Append(make([]byte, 11))), ErrTooLarge)
	require.ErrorIs(t, j.Close(), ErrTooLarge)
}

// Several owners append and commit while the journal is compacted again and again; the oracle is a
// list under the same lock.
func TestCompactionUnderLoadLosesNothing(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "journal")
	cfg := Config{Sync: Never}
	j, _ := reopen(t, path, cfg)
	var mu sync.Mutex
	var all []string
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(w)))
			for i := range soak.Cases(2000) {
				text := fmt.Sprint(w, " ", i, string(make([]byte, r.IntN(500))))
				mu.Lock()
				all = append(all, text)
				seq := j.Append([]byte(text))
				mu.Unlock()
				if err := j.Commit(seq); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true // and once more, with nobody writing
		default:
		}
		require.NoError(t, j.Compact(func(mark func()) iter.Seq[[]byte] {
			mu.Lock()
			defer mu.Unlock()
			mark()
			snapshot := slices.Clone(all)
			return func(yield func([]byte) bool) {
				for _, text := range snapshot {
					if !yield([]byte(text)) {
						return
					}
				}
			}
		}))
	}
	require.NoError(t, j.Close())
	_, got := reopen(t, path, cfg)
	require.Equal(t, all, got)
}

func TestCompactionMakesTheFileAsShortAsItsSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := reopen(t, path, Config{Sync: Never, Growth: 3})
	value := make([]byte, 64<<10)
	for !j.Due(int64(len(value))) {
		require.NoError(t, j.Commit(j.Append(value)))
	}
	require.InDelta(t, dueFrom+3*len(value), j.Size(), float64(2*len(value)))
	require.NoError(t, j.Compact(func(mark func()) iter.Seq[[]byte] {
		mark()
		require.ErrorIs(t, j.Compact(nil), ErrBusy)
		return slices.Values([][]byte{value})
	}))
	require.Less(t, j.Size(), int64(len(value)+100))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, j.Size(), info.Size())
	require.ErrorContains(t, j.Compact(func(func()) iter.Seq[[]byte] { return slices.Values([][]byte{value}) }), "not called mark")
	require.NoError(t, j.Close())
	never, _ := reopen(t, path, Config{Growth: -1})
	require.NoError(t, never.Commit(never.Append(make([]byte, 2<<20))))
	require.False(t, never.Due(0))
}

// Commits go on while the snapshot is written, however long that takes.
func TestAppendingGoesOnDuringACompaction(t *testing.T) {
	j, _ := reopen(t, filepath.Join(t.TempDir(), "journal"), Config{Sync: Never})
	require.NoError(t, j.Compact(func(mark func()) iter.Seq[[]byte] {
		mark()
		return func(yield func([]byte) bool) {
			require.NoError(t, j.Commit(j.Append([]byte("meanwhile"))))
			yield([]byte("snapshot"))
			require.NoError(t, j.Commit(j.Append([]byte("and then"))))
		}
	}))
	path := j.path
	require.NoError(t, j.Close())
	_, got := reopen(t, path, Config{})
	require.Equal(t, []string{"snapshot", "meanwhile", "and then"}, got)
}

func TestClosingEndsACompaction(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := reopen(t, path, Config{})
	require.NoError(t, j.Commit(j.Append([]byte("kept"))))
	ended := make(chan error)
	started := make(chan struct{})
	go func() {
		ended <- j.Compact(func(mark func()) iter.Seq[[]byte] {
			mark()
			close(started)
			return func(yield func([]byte) bool) {
				for yield([]byte("for ever")) {
				}
			}
		})
	}()
	<-started
	require.NoError(t, j.Close())
	require.ErrorIs(t, <-ended, ErrClosed)
	require.NoFileExists(t, path+newSuffix)
	_, got := reopen(t, path, Config{})
	require.Equal(t, []string{"kept"}, got)
}
