//go:build interop

package interop

import (
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	weft "github.com/weft-project/weft/store"
)

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return portOf(t, l.Addr().String())
}

// shared is a file that has a store of PyTorch's and one of ours.
func (p *torch) shared(t *testing.T, cfg weft.FileConfig) (string, store, *weft.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store")
	var args []any
	if args = []any{path}; cfg.WorldSize > 0 {
		args = append(args, cfg.WorldSize)
	}
	theirs := p.open(t, "FileStore", args, nil)
	our, err := weft.NewFile(path, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { our.Close() })
	return path, theirs, our
}

func TestPyTorchsFileStoreAndOursReadWhatTheOtherWrites(t *testing.T) {
	p := start(t)
	references := p.references(t)
	for seed := range uint64(5) {
		_, theirs, our := p.shared(t, weft.FileConfig{})
		r, c, want := rand.New(rand.NewPCG(seed, 3)), t.Context(), map[string]string{}
		for range 200 {
			key, value := string(rune('a'+r.IntN(4))), strconv.Itoa(r.IntN(3))
			var err error
			switch r.IntN(11) {
			case 0:
				theirs.call(t, "set", key, value)
				want[key] = value
			case 1:
				err = our.Set(c, key, []byte(value))
				want[key] = value
			case 2:
				n, _ := strconv.Atoi(want[key])
				want[key] = strconv.Itoa(n + 2)
				require.Equal(t, want[key], text(theirs.call(t, "add", key, 2)))
			case 3:
				var sum int64
				n, _ := strconv.Atoi(want[key])
				want[key] = strconv.Itoa(n + 3)
				sum, err = our.Add(c, key, 3)
				require.Equal(t, want[key], strconv.FormatInt(sum, 10))
			case 4:
				theirs.call(t, "delete_key", key)
				delete(want, key)
			case 5:
				_, err = our.Delete(c, key)
				delete(want, key)
			case 6, 7:
				expected := strconv.Itoa(r.IntN(3))
				if r.IntN(2) == 0 {
					expected = want[key]
				}
				now, there := want[key]
				answer := now
				switch {
				case now == expected:
					want[key], answer = value, value
				case !there:
					answer = expected
				}
				if r.IntN(2) == 0 {
					require.Equal(t, answer, text(theirs.call(t, "compare_set", key, expected, value)))
				} else {
					var v []byte
					v, err = our.CompareSet(c, key, []byte(expected), []byte(value))
					require.Equal(t, answer, string(v))
				}
			case 8:
				err = our.MultiSet(c, weft.Pair{Key: key, Value: []byte(value)}, weft.Pair{Key: "a", Value: []byte("7")})
				want[key] = value
				want["a"] = "7"
			case 9:
				err = our.Push(c, key, []byte(value)) // which PyTorch must not notice
			case 10:
				_, _, err = our.TryPop(c, key)
			}
			require.NoError(t, err)
			for k, v := range want {
				require.Equal(t, v, text(theirs.call(t, "get", k)), "seed %d", seed)
				got, err := our.Get(c, k)
				require.NoError(t, err)
				require.Equal(t, v, string(got), "seed %d", seed)
			}
			n, err := our.NumKeys(c)
			require.NoError(t, err)
			require.Equal(t, strconv.FormatInt(n, 10), text(theirs.call(t, "num_keys")))
			require.Len(t, want, int(n)-references)
			if p.can("list_keys") { // the counting key, too, without its first letter
				keys := theirs.call(t, "list_keys")
				require.Len(t, keys, int(n), "%q", keys)
				require.Subset(t, keys, slices.Collect(maps.Keys(want)))
			}
		}
	}
}

// references is how many keys a FileStore has to count those that are open: one or none.
func (p *torch) references(t *testing.T) int {
	t.Helper()
	fresh := p.open(t, "FileStore", []any{filepath.Join(t.TempDir(), "store")}, nil)
	fresh.call(t, "set", "k", "v") // who only reads may wait for somebody to make the file
	n, err := strconv.Atoi(text(fresh.call(t, "num_keys")))
	require.NoError(t, err)
	require.Contains(t, []int{1, 2}, n)
	return n - 1
}

func TestConcurrentWritersOfPyTorchAndOursLoseNothingInAFile(t *testing.T) {
	p := start(t)
	path, theirs, our := p.shared(t, weft.FileConfig{})
	again := p.open(t, "FileStore", []any{path}, nil)
	const each = 100
	c := t.Context()
	ends := make(chan error)
	for _, s := range []store{theirs, again} {
		go func() {
			for range each {
				s.try(t, "add", "n", 1)
			}
			ends <- nil
		}()
	}
	for range 2 {
		go func() {
			f, err := weft.NewFile(path, weft.FileConfig{})
			for range each {
				if err == nil {
					_, err = f.Add(c, "n", 1)
				}
				if err == nil {
					err = f.MultiSet(c, weft.Pair{Key: "a", Value: make([]byte, 5000)}, weft.Pair{Key: "b", Value: nil})
				}
			}
			if err == nil {
				err = f.Close()
			}
			ends <- err
		}()
	}
	for range 4 {
		require.NoError(t, <-ends)
	}
	v, err := our.Get(c, "n")
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(4*each), string(v))
	require.Equal(t, strconv.Itoa(4*each), text(theirs.call(t, "get", "n")))
	require.Len(t, text(theirs.call(t, "get", "a")), 5000)
}

func TestPyTorchsFileStoreAndOursWakeEachOther(t *testing.T) {
	p := start(t)
	_, theirs, our := p.shared(t, weft.FileConfig{})
	c := t.Context()
	w, err := our.Watch(c, "x")
	require.NoError(t, err)
	defer w.Stop()
	got := theirs.begin(t, "get", "y")
	woken := make(chan error)
	go func() { woken <- our.Wait(c, "x") }()
	theirs.call(t, "set", "x", "1")
	require.NoError(t, <-woken)
	require.NoError(t, our.Set(c, "y", []byte("2")))
	require.Equal(t, "2", text((<-got).Value))
	theirs.call(t, "set", "x", "3")
	theirs.call(t, "delete_key", "x")
	require.Equal(t, weft.Change{Kind: weft.Created, Key: "x", New: []byte("1")}, <-w.C)
	require.Equal(t, weft.Change{Kind: weft.Updated, Key: "x", Old: []byte("1"), New: []byte("3")}, <-w.C)
	require.Equal(t, weft.Change{Kind: weft.Deleted, Key: "x", Old: []byte("3")}, <-w.C)
}

func TestTheLastOfPyTorchsAndOursToCloseRemovesTheFile(t *testing.T) {
	p := start(t)
	ways := []bool{false, true}
	if p.references(t) == 0 { // it removes the file when enough have closed, whoever is still there
		ways = ways[:1]
	}
	for _, references := range ways {
		for _, ours := range []string{"first", "last"} {
			path, theirs, our := p.shared(t, weft.FileConfig{WorldSize: 2, References: references})
			theirs.call(t, "set", "k", "v")
			closes := []func(){func() { require.NoError(t, our.Close()) }, func() { theirs.drop(t) }}
			if ours == "last" {
				closes[0], closes[1] = closes[1], closes[0]
			}
			closes[0]()
			require.FileExists(t, path, "ours closes %s", ours)
			closes[1]()
			require.NoFileExists(t, path, "ours closes %s", ours)
		}
	}
}
