package device

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestASmallBufferIsABufferInItsUsersMemory holds Small to what any buffer promises.
func TestASmallBufferIsABufferInItsUsersMemory(t *testing.T) {
	type user struct {
		Small
		name string
		_    [80]byte
	}
	before := Host().Stats()
	for n := range SmallBytes + 1 {
		for _, nobodys := range []bool{false, true} {
			u := &user{name: "kept"}
			b := u.Init(n, nobodys)
			require.NotNil(t, b)
			require.Equal(t, n, b.Len())
			require.Equal(t, Device(Host()), b.Device())
			raw, err := b.Host()
			require.NoError(t, err)
			require.Equal(t, make([]byte, n), raw)
			require.Equal(t, n, cap(raw), "an append goes elsewhere")
			require.False(t, b.ReadOnly())
			_, shared := b.Segment()
			require.False(t, shared)
			counted := int64(1)
			if nobodys {
				counted = 0
			}
			require.Equal(t, before.Live+counted, Host().Stats().Live)
			require.Equal(t, before.LiveBytes+counted*int64(n), Host().Stats().LiveBytes)
			if n%2 == 0 {
				b.Disown()
				b.Disown()
				require.Equal(t, before.Live, Host().Stats().Live)
			}
			other, err := Host().Alloc(n)
			require.NoError(t, err)
			require.NoError(t, Copy(b, other))
			require.NoError(t, Copy(other, b))
			require.NoError(t, other.Release())

			require.True(t, b.Exclusive())
			b.Retain()
			require.False(t, b.Exclusive())
			require.NoError(t, b.Release())
			require.NoError(t, b.Release())
			require.ErrorIs(t, b.Release(), ErrReleased)
			_, err = b.Host()
			require.ErrorIs(t, err, ErrReleased)
			require.Equal(t, "kept", u.name)
			after := Host().Stats()
			require.Equal(t, before.Live, after.Live)
			require.Equal(t, before.LiveBytes, after.LiveBytes)
			runtime.KeepAlive(u)
		}
	}
}

func TestASmallBufferIsRefusedWhereItCannotBeOne(t *testing.T) {
	type user struct {
		Small
		_ [96]byte
	}
	require.Nil(t, new(user).Init(SmallBytes+1, false))
	require.Nil(t, new(user).Init(-1, false))
	type crooked struct {
		_ [8]byte
		Small
		_ [88]byte
	}
	require.Nil(t, new(crooked).Init(4, false), "its memory is not aligned")
}

func TestDisowningAllocatesNothing(t *testing.T) {
	n := testing.AllocsPerRun(100, func() {
		b, err := Host().Alloc(64)
		if err != nil {
			t.Fatal(err)
		}
		b.Disown()
		_ = b.Release() // ours
	})
	require.LessOrEqual(t, n, 1.0, "the Buffer itself")
}

func TestNobodyGetsAReferenceToAClaimedBuffer(t *testing.T) {
	for _, b := range []*Buffer{mustAlloc(t, 10), new(lone).Init(10, false)} {
		require.True(t, b.TryRetain())
		require.False(t, b.Claim(), "another one could see it")
		require.NoError(t, b.Release())
		require.True(t, b.Claim())
		require.False(t, b.TryRetain())
		require.False(t, b.Claim())
		raw, err := b.Host()
		require.NoError(t, err, "who claimed it uses it")
		raw[0] = 1
		require.NoError(t, Host().Upload(b, 1, []byte{2}))
		b.Unclaim()
		require.True(t, b.Exclusive())
		require.NoError(t, b.Release())
		require.False(t, b.TryRetain())
		require.False(t, b.Claim())
		require.ErrorIs(t, b.Release(), ErrReleased)
	}
	foreign := Foreign(make([]byte, 64), nil, func() {})
	require.False(t, foreign.Claim())
	require.NoError(t, foreign.Release())
}

type lone struct {
	Small
	_ [32]byte
}

func mustAlloc(t *testing.T, n int) *Buffer {
	b, err := Host().Alloc(n)
	require.NoError(t, err)
	return b
}
