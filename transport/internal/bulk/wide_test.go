package bulk

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// counted is a connection that counts what is asked of it.
type counted struct {
	net.Conn
	got           bytes.Buffer
	writes, reads int
}

func (k *counted) Write(b []byte) (int, error) {
	k.writes++
	return k.got.Write(b)
}

func (k *counted) Read(b []byte) (int, error) {
	k.reads++
	return k.got.Read(b)
}

func TestRecordsGoTogetherAndAllOfThemWithTheFlush(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		under := &counted{}
		w := &wide{Conn: under}
		_, err := w.Write([]byte("greeting"))
		require.NoError(t, err)
		require.Equal(t, "greeting", under.got.String(), "before collect nothing waits")
		var hello [8]byte
		_, err = io.ReadFull(w, hello[:])
		require.NoError(t, err)
		w.collect()
		under.writes, under.reads = 0, 0
		sent := pattern([]int{0, 1, wideBytes - 1, wideBytes, wideBytes + 1, r.IntN(5 * wideBytes)}[r.IntN(6)])
		for left := sent; len(left) > 0; {
			n := min(len(left), 1+r.IntN(recordBytes))
			_, err := w.Write(left[:n])
			require.NoError(t, err)
			left = left[n:]
		}
		require.LessOrEqual(t, under.writes, len(sent)/wideBytes)
		require.NoError(t, w.flush())
		require.Equal(t, len(sent), under.got.Len())
		got := make([]byte, len(sent))
		for left := got; len(left) > 0; { // as TLS does, a record or less at a time
			n, err := w.Read(left[:min(len(left), 1+r.IntN(recordBytes))])
			require.NoError(t, err)
			left = left[n:]
		}
		require.Equal(t, sent, got)
		require.LessOrEqual(t, under.reads, len(sent)/wideBytes+1)
	}
}

func TestAReadThatIsInterruptedLosesNothing(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	w := &wide{Conn: here}
	w.collect()
	require.NoError(t, w.SetReadDeadline(time.Unix(1, 0)))
	var b [3]byte
	_, err := w.Read(b[:])
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, w.SetReadDeadline(time.Time{}))
	go func() { _, _ = there.Write([]byte("abc")) }() // read below, or the test fails
	_, err = io.ReadFull(w, b[:])
	require.NoError(t, err)
	require.Equal(t, "abc", string(b[:]))
}
