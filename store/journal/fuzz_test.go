package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Any file is refused, or is a journal that gives the same records when it is opened again, with
// one more behind them. None costs more memory than it is long.
func FuzzOpen(f *testing.F) {
	whole := appendHead(nil, 7)
	for _, text := range []string{"one", "", "three"} {
		frame := appendRecord(appendRecord(nil, []byte(text)), []byte("and more"))
		seal(frame, 7, int64(len(whole)))
		whole = append(whole, frame...)
	}
	huge := appendRecord(nil, nil)
	huge[frameHead-1] = 0xff
	for _, seed := range [][]byte{nil, whole, whole[:len(whole)-3], append(bytes.Clone(whole), 0, 0, 0), append(bytes.Clone(whole), whole...), huge} {
		f.Add(seed)
	}
	path := filepath.Join(f.TempDir(), "journal")
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		open := func() (j *Journal, got [][]byte, err error) {
			j, err = Open(path, Config{Sync: Never}, func(r []byte) error { got = append(got, bytes.Clone(r)); return nil })
			return j, got, err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		j, first, err := open()
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20+16*len(data)))
		if err != nil {
			require.True(t, errors.Is(err, ErrCorrupt), "%v", err)
			return
		}
		require.NoError(t, j.Commit(j.Append([]byte("more"))))
		require.NoError(t, j.Close())
		j, second, err := open()
		require.NoError(t, err)
		require.NoError(t, j.Close())
		require.Equal(t, append(first, []byte("more")), second)
	})
}

// What seal has written is read, at its offset and with its salt and nowhere else; and a changed
// byte is seen.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("record"), []byte("another"), uint64(1), int64(20), uint16(3))
	f.Fuzz(func(t *testing.T, a, b []byte, salt uint64, at int64, change uint16) {
		at &= 1<<40 - 1
		frame := appendRecord(appendRecord(nil, a), b)
		seal(frame, salt, at)
		read := func(salt uint64, at int64) (got [][]byte, whole bool) {
			length, want, ok := parseFrameHead(frame, salt, at)
			if !ok || length != int64(len(frame)-frameHead) || sum(frame[frameHead:]) != want {
				return nil, false
			}
			for rest := frame[frameHead:]; len(rest) > 0; {
				record, more, ok := cutRecord(rest)
				require.True(t, ok)
				got, rest = append(got, record), more
			}
			return got, true
		}
		got, whole := read(salt, at)
		require.True(t, whole)
		require.Len(t, got, 2)
		require.True(t, bytes.Equal(a, got[0]) && bytes.Equal(b, got[1]))
		_, whole = read(salt+1, at)
		require.False(t, whole)
		_, whole = read(salt, at+1)
		require.False(t, whole)
		frame[int(change)%len(frame)] ^= 1 + byte(change>>8)&0x7e
		_, whole = read(salt, at)
		require.False(t, whole)
	})
}
