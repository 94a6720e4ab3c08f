package state

import "fmt"

// Op is what a command asks for. Package wire says by which bytes.
type Op byte

// The commands.
const (
	OpSet Op = iota
	OpCompareSet
	OpGet
	OpAdd
	OpCheck
	OpWait
	OpNumKeys
	OpWatch
	OpDelete
	OpAppend
	OpMultiGet
	OpMultiSet
	OpCancelWait
	OpPush    // to a queue
	OpPop     // from a queue, which may be empty
	OpLen     // of a queue
	OpList    // all keys
	OpBarrier // answered when as many have come as delta says
	OpFetch   // OpWait and OpMultiGet at once, which PyTorch has not
	OpTake    // OpWait and OpPop at once, of clients in this process
	OpReady   // answered when the queue has something, see State.call; which PyTorch has not
	OpArrive  // OpBarrier that only counts; which PyTorch has not
	OpReach   // OpBarrier that only waits; which PyTorch has not
	OpUnwatch // which PyTorch has not
	OpNews    // a reply only: of a watched key
)

// Two commands never reach the state: they are of the connection.
const (
	OpValidate Op = 0x80 + iota // sent first, answered by nothing
	OpPing                      // delta comes back
)

// opNames are for metrics, logs and errors.
var opNames = [...]string{
	OpSet: "set", OpCompareSet: "compare_set", OpGet: "get", OpAdd: "add", OpCheck: "check", OpWait: "wait",
	OpNumKeys: "num_keys", OpWatch: "watch", OpDelete: "delete", OpAppend: "append", OpMultiGet: "multi_get",
	OpMultiSet: "multi_set", OpCancelWait: "cancel_wait", OpPush: "push", OpPop: "pop", OpLen: "len", OpList: "list_keys",
	OpBarrier: "barrier", OpFetch: "fetch", OpTake: "take", OpReady: "ready", OpArrive: "arrive", OpReach: "reach", OpUnwatch: "unwatch", OpNews: "news",
	OpValidate: "validate", OpPing: "ping",
}

func (o Op) String() string {
	if int(o) < len(opNames) && opNames[o] != "" {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", byte(o))
}
