package gpus

import (
	"errors"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/internal/turns"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/rpc"
)

// An alarm of a member may hold anything: it is refused, or is an error of bounded length.
func FuzzAlarm(f *testing.F) {
	for _, err := range []error{errors.New("a"), nccl.Failure("ncclAllReduce", 6, "words"), &FailedError{Cause: &late{"b"}}, &collective.LateError{By: "w"}} {
		f.Add(alarmOf(err).encode())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var a alarm
		if err := a.decode(raw); err != nil {
			require.ErrorIs(t, err, rpc.ErrProtocol)
			return
		}
		require.Less(t, len(a.err().Error()), 3*mostSaid)
	})
}

// What a member says that it calls may be anything, too.
func FuzzCalled(f *testing.F) {
	good := saying([]nccl.Call{{Type: nccl.Float32, Count: 3}, {Kind: nccl.Send, Peer: 1}}, "x.go:1", true)
	for _, c := range []called{good, {}, {Calls: []operation{{Kind: nccl.Recv, Peer: 7}}}, {Calls: []operation{{Kind: -1}}}} {
		raw, err := cbor.Marshal(c)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var theirs called
		if cbor.Unmarshal(raw, &theirs) != nil {
			return
		}
		if err := together([]called{good, theirs}); err != nil && !errors.Is(err, rpc.ErrProtocol) {
			require.ErrorIs(t, err, collective.ErrMismatch)
		}
	})
}

func TestAnAlarmKeepsTheKindOfAnErrorAndAtMostSoManyWords(t *testing.T) {
	for _, err := range []error{
		nccl.Failure("ncclAllReduce", 6, "words"), &FailedError{Rank: 1, Cause: nccl.Failure("ncclSend", 1, strings.Repeat("long ", mostSaid))},
		&collective.LateError{By: "worker1", Missing: []string{"worker2"}},
	} {
		var a alarm
		require.NoError(t, a.decode(alarmOf(err).encode()))
		for _, kind := range []error{nccl.ErrRemote, nccl.ErrCUDA, rpc.ErrTimeout} {
			require.Equal(t, errors.Is(err, kind), errors.Is(a.err(), kind), "%v", err)
		}
		require.LessOrEqual(t, len(a.Says), mostSaid)
	}
	require.ErrorIs(t, together([]called{{Calls: []operation{{Kind: nccl.Send, Peer: 9}}}}), rpc.ErrProtocol, "a rank that is not there")
}

func TestAnAlarmIsTextWhereverItIsCut(t *testing.T) {
	for _, says := range []string{strings.Repeat("a", mostSaid-1) + "é", "\xff", strings.Repeat("é", mostSaid)} {
		for _, err := range []error{errors.New(says), nccl.Failure(says, 3, says)} {
			var a alarm
			require.NoError(t, a.decode(alarmOf(err).encode()))
			require.LessOrEqual(t, len(a.Says), mostSaid)
		}
	}
}

func TestAnAlarmTellsOfAFailureWithoutWhoHadItFirst(t *testing.T) {
	a := alarmOf(&FailedError{Rank: 1, Worker: "w", Cause: errors.New("x")})
	require.Equal(t, "x", a.Says, "who hears of it says who told")
}

// What has ended holds up nobody, and is not done when those before it have gone.
func TestOfACommunicatorThatHasEndedNothingIsDoneAnyMore(t *testing.T) {
	d, ended, lives := Use(nil), &Comm{}, &Comm{}
	key := func(n uint64) turns.Key { return turns.Key{Group: "g", N: n} }
	first := d.lineUp(key(1))
	var did []int
	jobs := map[int]*job{}
	for n, m := range map[int]*Comm{2: ended, 3: lives} {
		jobs[n] = &job{of: m, done: make(chan struct{}), do: func() error { did = append(did, n); return nil }}
	}
	for n := 2; n <= 3; n++ { // they wait for the first
		d.settle(key(uint64(n)), []uint64{d.lineUp(key(uint64(n)))}, jobs[n])
	}
	d.abandon(ended)
	one := &job{of: lives, done: make(chan struct{}), do: func() error { did = append(did, 1); return nil }}
	d.settle(key(1), []uint64{first}, one)
	<-jobs[3].done
	require.Equal(t, []int{1, 3}, did)
	select {
	case <-jobs[2].done:
		require.Fail(t, "it is done")
	default:
	}
}
