package store

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
)

// wires are all ways to speak.
var wires = map[string]wire{
	"1.13": {dialect: Dialect113}, "2.0": {dialect: Dialect20}, "2.1": {dialect: Dialect21},
	"2.2": {dialect: Dialect22}, "own": {dialect: Dialect22, own: true},
}

var tight = Limits{Key: 64, Value: 256, Keys: 16}.withDefaults()

// commandsOf are the commands that w has.
func commandsOf(w wire) (ops []op) {
	for code := range 256 {
		if o, err := w.op(byte(code)); err == nil {
			ops = append(ops, o)
		}
	}
	return ops
}

func randomText(r *rand.Rand, most int) []byte {
	b := make([]byte, r.IntN(most+1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// fill gives a command or reply of such an operation the fields that it has on the wire.
func fillCommand(r *rand.Rand, o op) command {
	key := func() string { return string(randomText(r, 20)) }
	cmd := command{op: o}
	switch o {
	case opNumKeys, opList, opCancelWait, opValidate:
	case opPing:
		cmd.delta = int64(r.Uint32())
	case opCheck, opWait, opMultiGet, opFetch:
		for range r.IntN(5) {
			cmd.keys = append(cmd.keys, key())
		}
	case opMultiSet:
		for range r.IntN(5) {
			cmd.pairs = append(cmd.pairs, Pair{key(), randomText(r, 100)})
		}
	case opCompareSet:
		cmd.key, cmd.expected, cmd.value = key(), randomText(r, 100), randomText(r, 100)
	case opSet, opAppend, opPush:
		cmd.key, cmd.value = key(), randomText(r, 100)
	case opAdd, opBarrier, opArrive, opReach:
		cmd.key, cmd.delta = key(), int64(r.Uint64())
	default:
		cmd.key = key()
	}
	return cmd
}

func fillReply(r *rand.Rand, cmd command) reply {
	out := reply{op: cmd.op}
	switch cmd.op {
	case opGet, opCompareSet:
		out.value = randomText(r, 200)
	case opAdd, opArrive, opNumKeys, opDelete, opLen:
		out.n = int64(r.Uint64())
	case opCheck:
		out.ok = r.IntN(2) == 0
	case opPing:
		out.n = cmd.delta
	case opMultiGet, opFetch:
		for range cmd.keys {
			out.values = append(out.values, randomText(r, 200))
		}
	case opPop:
		if out.n = int64(r.IntN(3)); out.n > 0 {
			out.value = randomText(r, 200)
		}
	case opList:
		for range r.IntN(5) {
			out.keys = append(out.keys, string(randomText(r, 20)))
		}
	}
	return out
}

// lying are beginnings that promise more than is allowed, or than comes.
func lying(w wire) (out [][]byte) {
	for _, o := range commandsOf(w) {
		code, _ := w.code(o)
		for _, n := range []uint64{65, 257, 1 << 31, 1 << 62, 1<<64 - 1} {
			out = append(out, binary.LittleEndian.AppendUint64([]byte{code}, n))
		}
	}
	return out
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// wireNames are the keys of wires, for fuzzers to choose from.
var wireNames = []string{"1.13", "2.0", "2.1", "2.2", "own"}

func wireOf(n uint8) wire { return wires[wireNames[int(n)%len(wireNames)]] }
