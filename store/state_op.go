package store

import "fmt"

// op is what a command asks for. wire.go says by which bytes.
type op byte

const (
	opSet op = iota
	opCompareSet
	opGet
	opAdd
	opCheck
	opWait
	opNumKeys
	opWatch
	opDelete
	opAppend
	opMultiGet
	opMultiSet
	opCancelWait
	opPush    // to a queue
	opPop     // from a queue, which may be empty
	opLen     // of a queue
	opList    // all keys
	opBarrier // answered when as many have come as delta says
	opFetch   // opWait and opMultiGet at once, which PyTorch has not
	opTake    // opWait and opPop at once, of clients in this process
	opReady   // answered when the queue has something, see state.call; which PyTorch has not
	opArrive  // opBarrier that only counts; which PyTorch has not
	opReach   // opBarrier that only waits; which PyTorch has not
	opUnwatch // which PyTorch has not
	opNews    // a reply only: of a watched key
)

// Two commands never reach the state: they are of the connection.
const (
	opValidate op = 0x80 + iota // sent first, answered by nothing
	opPing                      // delta comes back
)

// opNames are for metrics, logs and errors.
var opNames = [...]string{
	opSet: "set", opCompareSet: "compare_set", opGet: "get", opAdd: "add", opCheck: "check", opWait: "wait",
	opNumKeys: "num_keys", opWatch: "watch", opDelete: "delete", opAppend: "append", opMultiGet: "multi_get",
	opMultiSet: "multi_set", opCancelWait: "cancel_wait", opPush: "push", opPop: "pop", opLen: "len", opList: "list_keys",
	opBarrier: "barrier", opFetch: "fetch", opTake: "take", opReady: "ready", opArrive: "arrive", opReach: "reach", opUnwatch: "unwatch", opNews: "news",
	opValidate: "validate", opPing: "ping",
}

func (o op) String() string {
	if int(o) < len(opNames) && opNames[o] != "" {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", byte(o))
}
