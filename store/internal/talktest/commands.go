package talktest

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/wire"
)

// Wires are all ways to speak.
var Wires = map[string]wire.Protocol{
	"1.13": {Dialect: wire.Dialect113}, "2.0": {Dialect: wire.Dialect20}, "2.1": {Dialect: wire.Dialect21},
	"2.2": {Dialect: wire.Dialect22}, "own": {Dialect: wire.Dialect22, Own: true},
}

// Tight are limits that are soon reached.
var Tight = kv.Defaulted(kv.Limits{Key: 64, Value: 256, Keys: 16})

// CommandsOf are the commands that w has.
func CommandsOf(w wire.Protocol) (ops []state.Op) {
	for code := range 256 {
		if o, err := w.Op(byte(code)); err == nil {
			ops = append(ops, o)
		}
	}
	return ops
}

// RandomText is up to so many random bytes.
func RandomText(r *rand.Rand, most int) []byte {
	b := make([]byte, r.IntN(most+1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// FillCommand gives a command of such an operation the fields that it has on the wire.
func FillCommand(r *rand.Rand, o state.Op) state.Command {
	key := func() string { return string(RandomText(r, 20)) }
	cmd := state.Command{Op: o}
	switch o {
	case state.OpNumKeys, state.OpList, state.OpCancelWait, state.OpValidate:
	case state.OpPing:
		cmd.Delta = int64(r.Uint32())
	case state.OpCheck, state.OpWait, state.OpMultiGet, state.OpFetch:
		for range r.IntN(5) {
			cmd.Keys = append(cmd.Keys, key())
		}
	case state.OpMultiSet:
		for range r.IntN(5) {
			cmd.Pairs = append(cmd.Pairs, kv.Pair{Key: key(), Value: RandomText(r, 100)})
		}
	case state.OpCompareSet:
		cmd.Key, cmd.Expected, cmd.Value = key(), RandomText(r, 100), RandomText(r, 100)
	case state.OpSet, state.OpAppend, state.OpPush:
		cmd.Key, cmd.Value = key(), RandomText(r, 100)
	case state.OpAdd, state.OpBarrier, state.OpArrive, state.OpReach:
		cmd.Key, cmd.Delta = key(), int64(r.Uint64())
	default:
		cmd.Key = key()
	}
	return cmd
}

// FillReply is likewise a reply to a command.
func FillReply(r *rand.Rand, cmd state.Command) state.Reply {
	out := state.Reply{Op: cmd.Op}
	switch cmd.Op {
	case state.OpGet, state.OpCompareSet:
		out.Value = RandomText(r, 200)
	case state.OpAdd, state.OpArrive, state.OpNumKeys, state.OpDelete, state.OpLen:
		out.N = int64(r.Uint64())
	case state.OpCheck:
		out.OK = r.IntN(2) == 0
	case state.OpPing:
		out.N = cmd.Delta
	case state.OpMultiGet, state.OpFetch:
		for range cmd.Keys {
			out.Values = append(out.Values, RandomText(r, 200))
		}
	case state.OpPop:
		if out.N = int64(r.IntN(3)); out.N > 0 {
			out.Value = RandomText(r, 200)
		}
	case state.OpList:
		for range r.IntN(5) {
			out.Keys = append(out.Keys, string(RandomText(r, 20)))
		}
	}
	return out
}

// Lying are beginnings that promise more than is allowed, or than comes.
func Lying(w wire.Protocol) (out [][]byte) {
	for _, o := range CommandsOf(w) {
		code, _ := w.Code(o)
		for _, n := range []uint64{65, 257, 1 << 31, 1 << 62, 1<<64 - 1} {
			out = append(out, binary.LittleEndian.AppendUint64([]byte{code}, n))
		}
	}
	return out
}

// Allocated is how many bytes f allocates.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// WireNames are the keys of wires, for fuzzers to choose from.
var WireNames = []string{"1.13", "2.0", "2.1", "2.2", "own"}

// WireOf is the one that a fuzzer chose.
func WireOf(n uint8) wire.Protocol { return Wires[WireNames[int(n)%len(WireNames)]] }
