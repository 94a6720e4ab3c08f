package file

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/store/internal/kv"
)

// next is the next change of a watch.
func next(t *testing.T, w *kv.Watch) string {
	t.Helper()
	select {
	case ch, ok := <-w.C:
		require.True(t, ok, "the watch ended: %v", w.Err())
		text := func(b []byte) string {
			if b == nil {
				return "none"
			}
			return strconv.Quote(string(b))
		}
		s := fmt.Sprintf("%v %s: %s, %s", ch.Kind, ch.Key, text(ch.Old), text(ch.New))
		if ch.Dropped != 0 {
			s += fmt.Sprint(", dropped ", ch.Dropped)
		}
		return s
	case <-time.After(time.Minute):
		require.Fail(t, "no change")
		return ""
	}
}

func TestAWatchOfAFileMissesNothingBetweenTwoLooks(t *testing.T) {
	leak.Check(t)
	path, c := filepath.Join(t.TempDir(), "s"), t.Context()
	f, g := openFile(t, path, Config{Poll: time.Millisecond}), openFile(t, path, Config{})
	require.NoError(t, g.Set(c, "k", []byte("before")))
	w, err := f.Watch(c, "k")
	require.NoError(t, err)
	require.NoError(t, g.Set(c, "k", nil))
	require.NoError(t, g.Set(c, "other", nil))
	require.NoError(t, g.Append(c, "k", []byte("5")))
	_, err = g.Add(c, "k", 2)
	require.NoError(t, err)
	_, err = g.Delete(c, "k")
	require.NoError(t, err)
	require.NoError(t, g.MultiSet(c, kv.Pair{Key: "k", Value: []byte("a")}, kv.Pair{Key: "l", Value: nil}, kv.Pair{Key: "k", Value: []byte("b")}))
	require.NoError(t, f.Set(c, "k", []byte("own"))) // its records stand behind those
	for _, want := range []string{`updated k: "before", ""`, `updated k: "", "5"`, `updated k: "5", "7"`, `deleted k: "7", none`,
		`created k: none, "a"`, `updated k: "a", "b"`, `updated k: "b", "own"`} {
		require.Equal(t, want, next(t, w))
	}
	w.Stop()
	require.ErrorIs(t, w.Err(), context.Canceled)

	w, err = f.Watch(c, "k")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, more := <-w.C
	require.False(t, more)
	require.ErrorIs(t, w.Err(), kv.ErrClosed)
	_, err = f.Watch(c, "k")
	require.ErrorIs(t, err, kv.ErrClosed)
	require.NoError(t, g.Close())
}

func TestAWaitOfAFileSeesWhatComesAndGoesBetweenTwoLooks(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "s"), t.Context()
	f, g := openFile(t, path, Config{Poll: 20 * time.Millisecond}), openFile(t, path, Config{})
	done := make(chan error)
	go func() { done <- f.Wait(c, "a", "b") }()
	for i := 0; ; i++ { // from some of these on f waits
		require.NoError(t, g.MultiSet(c, kv.Pair{Key: "a", Value: nil}, kv.Pair{Key: "b", Value: nil}))
		for _, k := range []string{"a", "b"} {
			_, err := g.Delete(c, k)
			require.NoError(t, err)
		}
		select {
		case err := <-done:
			require.NoError(t, err)
			return
		default:
		}
	}
}

func TestABarrierOfAFileIsPassedAlsoIfItsKeyIsGoneAtTheNextLook(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "s"), t.Context()
	f, g := openFile(t, path, Config{}), openFile(t, path, Config{})
	done := make(chan error)
	go func() { done <- f.Barrier(c, "b", 2) }()
	require.NoError(t, g.Wait(c, "b"))
	require.NoError(t, g.Barrier(c, "b", 2))
	_, err := g.Delete(c, "b")
	require.NoError(t, err)
	require.NoError(t, <-done)
}

func TestAFileThatIsRemovedIsAnEmptyStoreUntilSomebodyWrites(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "s"), t.Context()
	f := openFile(t, path, Config{Poll: time.Millisecond})
	require.NoError(t, f.Set(c, "k", []byte("v")))
	w, err := f.Watch(c, "k")
	require.NoError(t, err)
	got := make(chan error)
	go func() {
		_, err := f.MultiGet(c, "k", "new")
		got <- err
	}()
	require.NoError(t, os.Remove(path))
	require.Equal(t, `deleted k: "v", none, dropped -1`, next(t, w))
	ok, err := f.Check(c, "k")
	require.NoError(t, err)
	require.False(t, ok)
	require.NoFileExists(t, path, "reading does not make a file")

	g := openFile(t, path, Config{})
	require.NoError(t, g.MultiSet(c, kv.Pair{Key: "new", Value: nil}, kv.Pair{Key: "k", Value: []byte("v2")}))
	require.Equal(t, `created k: none, "v2"`, next(t, w))
	require.NoError(t, <-got)
}

func TestAFileThatIsWrittenAnewInPlaceIsAnotherStore(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "s"), t.Context()
	f := openFile(t, path, Config{Poll: time.Millisecond})
	require.NoError(t, f.MultiSet(c, kv.Pair{Key: "a", Value: []byte("1")}, kv.Pair{Key: "b", Value: []byte("2")}))
	w, err := f.Watch(c, "a")
	require.NoError(t, err)
	lines := appendRecord(nil, "/a", []byte("3"))
	for range 10 {
		lines = append(lines, lines[:11]...)
	}
	require.NoError(t, os.WriteFile(path, lines, 0o600))
	require.Equal(t, `updated a: "1", "3", dropped -1`, next(t, w))
	require.Equal(t, map[string]string{"/a": "3"}, valuesOf(t, f))
}

func TestAFileThatIsDamagedUnderItsWaitersEndsTheirWaiting(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "s"), t.Context()
	f := openFile(t, path, Config{Poll: time.Millisecond})
	w, err := f.Watch(c, "k")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("no log at all"), 0o600))
	require.ErrorIs(t, f.Wait(c, "k"), kv.ErrCorrupt)
	_, more := <-w.C
	require.False(t, more)
	require.ErrorIs(t, w.Err(), kv.ErrCorrupt)
}

func TestAChangeThatCannotBeWrittenHasNotHappened(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "s"), t.Context()
	f, g := openFile(t, path, Config{Poll: time.Millisecond}), openFile(t, path, Config{})
	require.NoError(t, f.Set(c, "k", []byte("1")))
	w, err := f.Watch(c, "k")
	require.NoError(t, err)
	got := make(chan error)
	go func() { got <- f.Wait(c, "l") }()
	f.mu.Lock()
	writable := f.log.file
	f.log.file, err = os.Open(path)
	f.mu.Unlock()
	require.NoError(t, err)

	require.ErrorIs(t, f.Set(c, "k", []byte("2")), kv.ErrUncertain) // as it cannot even be cut off
	require.ErrorContains(t, f.MultiSet(c, kv.Pair{Key: "l", Value: nil}, kv.Pair{Key: "m", Value: nil}), path)
	require.Equal(t, map[string]string{"/k": "1"}, valuesOf(t, f))
	f.mu.Lock()
	require.NoError(t, f.log.file.Close())
	f.log.file = writable
	f.mu.Unlock()
	require.NoError(t, g.MultiSet(c, kv.Pair{Key: "k", Value: []byte("3")}, kv.Pair{Key: "l", Value: nil}))
	require.Equal(t, `updated k: "1", "3"`, next(t, w))
	require.NoError(t, <-got)
}

func TestReferencesKeepTheFileAsInPyTorch2(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "s"), t.Context()
	first := openFile(t, path, Config{WorldSize: 2, References: true})
	other := openFile(t, path, Config{WorldSize: 2}) // counts itself, as others are counted
	again := openFile(t, path, Config{})
	n, err := first.NumKeys(c)
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	for _, f := range []*File{first, other} {
		require.NoError(t, f.Close())
		require.FileExists(t, path, "one is still open")
	}
	seen, err := torchSees(contentOf(t, again))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"refcount/": "1", "cleanup/": "2"}, seen)
	last := openFile(t, path, Config{WorldSize: 2})
	require.NoError(t, again.Close())
	require.FileExists(t, path)
	require.NoError(t, last.Close())
	require.NoFileExists(t, path)
}

func TestAClientThatClosesAfterTheFileWasRemovedDoesNotMakeItAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f := openFile(t, path, Config{WorldSize: 2})
	require.NoError(t, os.Remove(path))
	require.NoError(t, f.Close())
	require.NoFileExists(t, path)
}

func TestPyTorch1sCountOfThoseWhoLeftIsCountedOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f := openFile(t, path, Config{WorldSize: 3})
	put(t, path, appendRecord(nil, "/k", nil), appendRecord(nil, "cleanup/", []byte("1")))
	g := openFile(t, path, Config{WorldSize: 3})
	require.NoError(t, f.Close())
	require.FileExists(t, path)
	require.NoError(t, g.Close())
	require.NoFileExists(t, path)
}

// TestRandomCallsThroughManyClientsOfAFileAreWhatPyTorchReads compares what Weft says with what a
// plain reader of the file sees.
func TestRandomCallsThroughManyClientsOfAFileAreWhatPyTorchReads(t *testing.T) {
	for seed := range uint64(soak.Cases(20)) {
		r := rand.New(rand.NewPCG(seed, 7))
		path, c := filepath.Join(t.TempDir(), "s"), t.Context()
		var clients []*File
		for range 3 {
			clients = append(clients, openFile(t, path, Config{}))
		}
		key := func() string { return string(rune('a' + r.IntN(4))) }
		value := func() []byte { return []byte(strconv.Itoa(r.IntN(3))) }
		pushed, popped := 0, 0
		for range 60 {
			f := clients[r.IntN(len(clients))]
			var err error
			switch r.IntN(9) {
			case 0:
				err = f.Set(c, key(), value())
			case 1:
				_, err = f.Add(c, key(), int64(r.IntN(5)))
			case 2:
				_, err = f.CompareSet(c, key(), value(), value())
			case 3:
				_, err = f.Delete(c, key())
			case 4:
				err = f.Append(c, key(), value())
			case 5:
				err = f.MultiSet(c, kv.Pair{Key: key(), Value: value()}, kv.Pair{Key: key(), Value: value()})
			case 6:
				pushed++
				err = f.Push(c, key(), value())
			case 7:
				var ok bool
				if _, ok, err = f.TryPop(c, key()); ok {
					popped++
				}
			case 8: // a writer dies, and another comes
				whole := appendBatch(nil, []kv.Pair{{Key: "/a", Value: []byte("9")}, {Key: "/b", Value: value()}})
				h, e := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
				require.NoError(t, e)
				_, e = h.Write(whole[:r.IntN(len(whole)+1)])
				require.NoError(t, e)
				require.NoError(t, h.Close())
				err = f.Set(c, "a", value())
			}
			require.NoError(t, err)
			seen, err := torchSees(contentOf(t, f))
			require.NoError(t, err)
			require.Equal(t, seen, valuesOf(t, clients[r.IntN(len(clients))]), "seed %d", seed)
		}
		left := 0
		for _, k := range "abcd" {
			n, err := clients[0].Len(c, string(k))
			require.NoError(t, err)
			left += int(n)
		}
		require.Equal(t, pushed-popped, left, "seed %d", seed)
	}
}
