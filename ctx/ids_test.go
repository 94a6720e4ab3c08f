package ctx

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIDsSayWhoMadeThemAndNeverRepeat(t *testing.T) {
	seen := map[uint64]bool{}
	for _, worker := range []WorkerID{0, 7, 40000, 65535} {
		ct := NewContainer(Config{Worker: worker, Links: wires{nil, worker}})
		defer ct.Close()
		for range 200 {
			_, p, err := ct.Open(t.Context())
			require.NoError(t, err)
			m := p.NextMessage()
			require.Equal(t, worker, p.ID().Creator())
			require.Equal(t, worker, m.Creator())
			require.Positive(t, uint64(p.ID())&maxCounter)
			require.False(t, seen[uint64(p.ID())] || seen[uint64(m)])
			seen[uint64(p.ID())], seen[uint64(m)] = true, true
			p.Leave()
		}
	}
}

func TestTheLivesOfAWorkerDrawDifferentIDsThatReadAlike(t *testing.T) {
	ids := map[PassID]string{}
	for life := range uint64(3) {
		ct := NewContainer(Config{Worker: 7, Links: wires{nil, 7}, First: life << 32})
		defer ct.Close()
		_, p, err := ct.Open(t.Context())
		require.NoError(t, err)
		ids[p.ID()] = p.ID().String()
		p.Leave()
	}
	require.Len(t, ids, 3)
	for id, text := range ids {
		require.Equal(t, "7.1", text)
		require.Equal(t, WorkerID(7), id.Creator())
	}
}

func TestAnIDIsSixteenBitsOfWorkerAndFortyEightOfCounter(t *testing.T) {
	require.Equal(t, uint64(0x0007_000000000001), newID(7, 1))
	require.Equal(t, uint64(281474976710655), newID(0, maxCounter))
	require.Equal(t, ^uint64(0), newID(65535, maxCounter))
	require.Equal(t, "65535.4294967295", PassID(^uint64(0)).String())
	require.Equal(t, "7.1", MessageID(newID(7, 1)).String())
	require.Equal(t, "7.1", BackwardID(newID(7, 1)).String())
}

func TestFunctionsAreListedByMessageWhoeverMadeIt(t *testing.T) {
	w := newWorld(t, 2)
	_, p := w.open(t, 0)
	var want []MessageID
	for _, worker := range []WorkerID{1, 32767, 32768, 65535} {
		id := MessageID(newID(worker, 1))
		want = append([]MessageID{}, append(want, id)...)
	}
	for _, i := range []int{2, 0, 3, 1} {
		_, err := p.AttachSend(want[i], 1, "test", tensors(param(1)))
		require.NoError(t, err)
		require.NoError(t, p.AttachRecv(want[i], 1, tensors(ones()), []bool{true}, nil, Lineage{}))
	}
	var sends, recvs []MessageID
	for i := range want {
		sends, recvs = append(sends, p.SendFunctions()[i].Message), append(recvs, p.RecvFunctions()[i].Message)
	}
	require.Equal(t, want, sends)
	require.Equal(t, want, recvs)
}
