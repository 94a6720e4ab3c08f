package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/talktest"
)

// torchSees is what a process of PyTorch has in memory after reading a log, or an error where it
// would hang or go astray.
func torchSees(log []byte) (map[string]string, error) {
	data := map[string]string{}
	for len(log) > 0 {
		var fields [2]string
		for i := range fields {
			if len(log) < 4 {
				return data, errors.New("a length breaks off")
			}
			n := binary.LittleEndian.Uint32(log)
			if log = log[4:]; uint64(n) > uint64(len(log)) {
				return data, errors.New("a field breaks off")
			}
			fields[i], log = string(log[:n]), log[n:]
		}
		if fields[0] != "" && fields[0][0] == '-' {
			delete(data, fields[0][1:])
		} else {
			data[fields[0]] = fields[1]
		}
	}
	return data, nil
}

// valuesOf is what clients of f see.
func valuesOf(t *testing.T, f *File) map[string]string {
	t.Helper()
	keys, err := f.ListKeys(t.Context())
	require.NoError(t, err)
	data := map[string]string{}
	for _, k := range keys { // one by one: together they may be more than one call may ask for
		v, err := f.Get(t.Context(), k)
		require.NoError(t, err)
		data["/"+k] = string(v)
	}
	return data
}

func contentOf(t *testing.T, f *File) []byte {
	t.Helper()
	b, err := os.ReadFile(f.Path())
	require.NoError(t, err)
	return b
}

func put(t *testing.T, path string, content ...[]byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, bytes.Join(content, nil), 0o600))
}

func TestQueuesAndChangesOfManyKeysAreTombstonesThatPyTorchIgnores(t *testing.T) {
	f, c := openFile(t, filepath.Join(t.TempDir(), "s"), Config{}), t.Context()
	require.NoError(t, f.Push(c, "q", []byte("v")))
	_, _, err := f.TryPop(c, "q")
	require.NoError(t, err)
	require.NoError(t, f.MultiSet(c, kv.Pair{Key: "a", Value: []byte("x")}, kv.Pair{Key: "b", Value: nil}))
	require.NoError(t, f.MultiSet(c, kv.Pair{Key: "a", Value: []byte("y")}))
	require.NoError(t, f.MultiSet(c))
	require.NoError(t, f.Append(c, "a", []byte("z")))
	want := talktest.Unhex(t, "07 00*3 '-push/q' 01 00*3 'v'  06 00*3 '-pop/q' 00*4 "+
		"07 00*3 '-multi/' 09 00*3  02 '/a' 01 'x' 02 '/b' 00 "+
		"02 00*3 '/a' 01 00*3 'x'  02 00*3 '/b' 00*4  02 00*3 '/a' 01 00*3 'y'  02 00*3 '/a' 02 00*3 'yz'")
	require.Equal(t, string(want), string(contentOf(t, f)))
	seen, err := torchSees(want)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"/a": "yz", "/b": ""}, seen)
	require.Equal(t, seen, valuesOf(t, openFile(t, f.Path(), Config{})))
}

func TestATornMultiSetHappenedOrNotAndIsFinishedByTheNextWriter(t *testing.T) {
	before := appendRecord(nil, "/a", []byte("old"))
	pairs := []kv.Pair{{Key: "/a", Value: []byte("new")}, {Key: "/b", Value: []byte("1")}, {Key: "/a", Value: []byte("newer")}, {Key: "/c", Value: nil}}
	batch := appendBatch(nil, pairs)
	whole := append(bytes.Clone(batch), appendPairs(nil, pairs)...)
	for cut := range len(whole) + 1 {
		path, c := filepath.Join(t.TempDir(), "s"), t.Context()
		put(t, path, before, whole[:cut])
		f := openFile(t, path, Config{})
		want := map[string]string{"/a": "old"}
		if cut >= len(batch) {
			want = map[string]string{"/a": "newer", "/b": "1", "/c": ""}
		}
		require.Equal(t, want, valuesOf(t, f), "cut at %d", cut)
		require.NoError(t, f.Set(c, "d", []byte("later")))
		want["/d"] = "later"
		seen, err := torchSees(contentOf(t, f))
		require.NoError(t, err, "cut at %d", cut)
		require.Equal(t, want, seen, "cut at %d", cut)
		require.Equal(t, want, valuesOf(t, openFile(t, path, Config{})), "cut at %d", cut)
	}
}

func TestWhatPyTorchAppendsToAnUnfinishedMultiSetComesAfterAllOfIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	pairs := []kv.Pair{{Key: "/a", Value: []byte("1")}, {Key: "/b", Value: []byte("1")}, {Key: "/c", Value: []byte("1")}}
	put(t, path, appendBatch(nil, pairs), appendPairs(nil, pairs[:1]), appendRecord(nil, "/b", []byte("2")))
	f := openFile(t, path, Config{})
	want := map[string]string{"/a": "1", "/b": "2", "/c": "1"}
	require.Equal(t, want, valuesOf(t, f))
	require.NoError(t, f.Set(t.Context(), "d", nil))
	want["/d"] = ""
	require.Equal(t, want, valuesOf(t, openFile(t, path, Config{})))
}

func TestADamagedLogIsRefusedWithTheOffsetAndNotTouched(t *testing.T) {
	one, two := appendRecord(nil, "/a", []byte("first")), appendRecord(nil, "/b", []byte("second"))
	for name, tc := range map[string]struct {
		content [][]byte
		offset  string
	}{
		"another's text":                     {[][]byte{[]byte("hi")}, "byte 0"},
		"a key that is too long":             {[][]byte{one, {1, 0x21, 0, 0}, two}, "byte 15"},
		"a value that is too long":           {[][]byte{one, appendRecord(nil, "/k", nil)[:6], {0, 0, 0, 1}}, "byte 15"},
		"a length without an end, too long":  {[][]byte{one, {0, 0x80}}, "byte 15"},
		"an empty key":                       {[][]byte{one, appendRecord(nil, "", []byte("v")), two}, "byte 15"},
		"a key that nobody has":              {[][]byte{one, appendRecord(nil, "k", []byte("v")), two}, "byte 15"},
		"a name that nobody has":             {[][]byte{one, appendRecord(nil, "Clean up/", []byte("v")), two}, "byte 15"},
		"a name that goes on":                {[][]byte{one, appendRecord(nil, "cleanup/k", []byte("v")), two}, "byte 15"},
		"the beginning of such":              {[][]byte{one, appendRecord(nil, "K", []byte("v"))[:5]}, "byte 15"},
		"a queue of nobody's":                {[][]byte{one, appendRecord(nil, "-pushk", nil), two}, "byte 15"},
		"a batch that is none":               {[][]byte{one, appendRecord(nil, batchKey, []byte{9, '/'}), two}, "byte 15"},
		"a batch of the bookkeeping's keys":  {[][]byte{one, appendBatch(nil, []kv.Pair{{Key: "refcount/", Value: nil}}), two}, "byte 15"},
		"a user's key that is too long":      {[][]byte{one, appendRecord(nil, "/"+strings.Repeat("k", 8<<10), nil), two}, "byte 15"},
		"a batch with such a key":            {[][]byte{one, appendBatch(nil, []kv.Pair{{Key: "/" + strings.Repeat("k", 8<<10), Value: nil}}), two}, "byte 15"},
		"a batch with a long value":          {[][]byte{one, appendBatch(nil, []kv.Pair{{Key: "/k", Value: make([]byte, 8<<20+1)}}), two}, "byte 15"},
		"a batch of too many":                {[][]byte{one, appendBatch(nil, slices.Repeat([]kv.Pair{{Key: "/k", Value: nil}}, 128<<10+1)), two}, "byte 15"},
		"a record behind a torn one":         {[][]byte{one, two[:len(two)-3], one}, "byte 31"},
		"a record behind a torn key":         {[][]byte{one, appendRecord(nil, "/a long key", nil)[:8], two}, "byte 15"},
		"records behind a torn, long record": {[][]byte{one, appendRecord(nil, "/b", make([]byte, 1000))[:500], two, one, two}, "byte 15"},
	} {
		path := filepath.Join(t.TempDir(), "s")
		put(t, path, tc.content...)
		_, err := New(path, Config{})
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
		require.ErrorContains(t, err, tc.offset, name)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, bytes.Join(tc.content, nil), got, name)
	}
}

func TestBookkeepingThatIsYetToBeInventedIsTolerated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	put(t, path, appendRecord(nil, "some_count2/", []byte("1")), appendRecord(nil, "/", []byte("an empty name")), appendRecord(nil, "-some_count2/", nil))
	f := openFile(t, path, Config{})
	n, err := f.NumKeys(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
}

func TestAPromiseOfBytesInAFileCostsNoMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	put(t, path, appendRecord(nil, "/k", make([]byte, 8<<20))[:100])
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f := openFile(t, path, Config{})
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	ok, err := f.Check(t.Context(), "k")
	require.NoError(t, err)
	require.False(t, ok)
}

func TestAStoreThatIsFullerThanItsReaderAllowsIsAnError(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "s"), t.Context()
	f, small := openFile(t, path, Config{}), openFile(t, path, Config{Limits: kv.Limits{Memory: 1000}})
	require.ErrorIs(t, small.Set(c, "k", make([]byte, 1000)), kv.ErrFull)
	require.NoError(t, small.Set(c, "k", []byte("v")))
	require.NoError(t, f.Set(c, "l", make([]byte, 1000)))
	_, err := small.Get(c, "k")
	require.ErrorIs(t, err, kv.ErrFull)
	_, err = f.Delete(c, "l")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"/k": "v"}, valuesOf(t, f))

	_, err = New(path, Config{WorldSize: -1, Limits: kv.Limits{Value: 2 << 30}})
	require.ErrorContains(t, err, "WorldSize")
	require.ErrorContains(t, err, "have a place in the format")
}

// recordsOf is scan by slicing: every record from the beginning, and where they end.
func recordsOf(b []byte, limits kv.Limits) (all []record, end int) {
	field := func(most int) (string, bool) {
		if len(b) < 4 || int64(binary.LittleEndian.Uint32(b)) > int64(min(most, len(b)-4)) {
			return "", false
		}
		n := int(binary.LittleEndian.Uint32(b))
		s := string(b[4 : 4+n])
		b = b[4+n:]
		return s, true
	}
	for {
		key, ok := field(longestKey(limits))
		value, whole := "", false
		if ok && isKey([]byte(key), true) {
			value, whole = field(longestValue(limits, key))
		}
		if !whole {
			return all, end
		}
		all = append(all, record{key, []byte(value)})
		end += 8 + len(key) + len(value)
	}
}

// FuzzFile: whatever a file contains, reading it ends, in bounds, with the records that are there;
// what is refused is left alone, and what is not goes on.
func FuzzFile(f *testing.F) {
	log := appendRecord(appendRecord(nil, "/a", []byte("1")), "-/a", nil)
	f.Add(log)
	f.Add(log[:len(log)-1])
	f.Add([]byte{255, 255, 255, 255, 0})
	pairs := []kv.Pair{{Key: "/a", Value: []byte("1")}, {Key: "/b", Value: []byte("2")}}
	f.Add(append(appendBatch(nil, pairs), appendPairs(nil, pairs[:1])...))
	f.Add(appendRecord(appendRecord(appendRecord(nil, "-push/q", []byte("1")), "-pop/q", nil), "refcount/", []byte("1")))
	path := filepath.Join(f.TempDir(), "s")
	f.Fuzz(func(t *testing.T, content []byte) {
		cfg := Config{Limits: kv.Limits{Key: 32, Value: 64, Keys: 4}}
		limits := kv.Defaulted(cfg.Limits)
		want, at := recordsOf(content, limits)
		var got []record
		end, err := scan(bytes.NewReader(content), 0, int64(len(content)), limits, func(r record) error {
			got = append(got, r)
			return nil
		})
		require.Equal(t, want, got)
		require.Equal(t, int64(at), end)
		if err != nil {
			require.ErrorIs(t, err, kv.ErrCorrupt)
		}

		require.NoError(t, os.WriteFile(path, content, 0o600))
		s, err := New(path, cfg)
		if err != nil {
			require.Truef(t, errors.Is(err, kv.ErrCorrupt) || errors.Is(err, kv.ErrNotANumber), "%v", err) // a refcount that is none
			left, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, content, left)
			return
		}
		defer s.Close()
		c := t.Context()
		require.NoError(t, s.MultiSet(c, kv.Pair{Key: "new", Value: []byte("1")}, kv.Pair{Key: "newer", Value: nil}))
		require.NoError(t, s.Push(c, "queue", []byte("v")))
		again, err := New(path, cfg)
		require.NoError(t, err)
		defer again.Close()
		require.Equal(t, valuesOf(t, s), valuesOf(t, again))
		n, err := again.Len(c, "queue")
		require.NoError(t, err)
		require.Positive(t, n)
		v, err := again.Get(c, "new")
		require.NoError(t, err)
		require.Equal(t, "1", string(v))
	})
}
