package refs

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A peer that sends what it likes neither makes a machine panic, nor frees what others hold, nor
// makes it keep more than the limit.
func FuzzAPeerThatSendsWhatItLikes(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 0, 1, 2, 1, 1, 0, 0, 2, 1, 0, 0, 0, 3, 1, 0, 0, 4, 1, 0, 0, 5, 1})
	f.Add([]byte{1, 1, 1, 1, 2, 1, 2, 1, 0, 0, 3, 1, 0, 0, 1, 4, 2, 3, 0, 5, 1, 1, 0, 6, 1, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 8
		now := time.Unix(0, 0)
		me, friend, foe := Node{0, 1}, Node{1, 2}, Node{2, 3}
		m := New(me, limit)
		m.Meet(friend)
		m.Meet(foe)
		own, mine := m.Own()
		require.NoError(t, m.Serve(friend, ID{me, friend, 1}))
		m.Made(ID{me, friend, 1}, true)
		theirs, ok, err := m.Arrive(now, friend, Share{ID{friend, friend, 1}, 1})
		require.True(t, ok)
		require.NoError(t, err)
		_, err = m.Share(own, friend, 0)
		require.NoError(t, err)
		before := m.Stats()
		next := func() uint64 {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return uint64(b)
		}
		ids := []ID{mine, {me, friend, 1}, {me, foe, 1}, {foe, foe, 1}, {friend, foe, 2}, {Node{9, 9}, foe, 1}}
		for len(data) > 0 {
			n := next()
			id := ids[next()%uint64(len(ids))]
			switch next() % 9 {
			case 0:
				if m.Serve(foe, id) == nil && n%2 == 0 {
					m.Made(id, n%4 == 0)
				}
			case 1:
				h, _, err := m.Arrive(now, foe, Share{id, n})
				if err == nil && n%2 == 0 {
					m.Release(now, h)
				}
			case 2:
				_ = m.Answer(foe, n)
			case 3:
				m.Answered(now, foe, n, []Answer{Answer(next())})
			case 4:
				_, _ = m.Share(own, foe, n)
			case 5:
				now = now.Add(time.Second)
				m.Tick(now)
			default:
				_, _ = m.Receive(now, foe, []Message{{Op: Op(n % 8), N: next(), Given: n%2 == 0, ID: id}})
			}
			p := m.peers[foe]
			for _, n := range []int{len(p.used), len(p.seen), len(p.answered), len(p.counted), len(p.given)} {
				require.LessOrEqual(t, n, limit)
			}
		}
		require.True(t, m.Has(mine))
		require.True(t, m.Has(ID{me, friend, 1}))
		require.Contains(t, m.holds, theirs)
		for _, id := range ids {
			if id.By == foe {
				m.Made(id, false) // its calls end
			}
		}
		m.Lose(now, foe)
		for h, s := range m.holds { // what it made this worker take, and the user has
			if s.parent == foe || s.id.Owner == foe || s.id.By == foe || h > theirs {
				m.Release(now, h)
			}
		}
		for m.Stats().Waiting > 0 { // the friend answers
			now = now.Add(time.Minute)
			m.Tick(now)
			for packet, msgs := range m.peers[friend].out.flying {
				m.Answered(now, friend, packet, slices.Repeat([]Answer{Gone}, len(msgs)))
			}
		}
		require.Equal(t, before, m.Stats())
	})
}
