package nccl

import "fmt"

// function is one of NCCL's.
type function int

const (
	getVersion function = iota
	getErrorString
	getLastError
	getUniqueID
	commInitRankConfig
	commSplit
	commShrink
	commAbort
	commRevoke
	commFinalize
	commDestroy
	commGetAsyncError
	commUserRank
	commCount
	commRegister
	commDeregister
	memAlloc
	memFree
	redOpCreatePreMulSum
	redOpDestroy
	groupStart
	groupEnd
	allReduce
	reduce
	broadcast
	allGather
	reduceScatter
	send
	recv
	functionCount
)

// oldest is the version that has all that is needed.
const oldest = 21800

// functions are the names in the library; since which version it has them, where that is later than
// the oldest; and what they take: p an address, z a size, i an int, u an id by value.
var functions = [functionCount]struct {
	name  string
	since int
	takes string
}{
	getVersion:           {"ncclGetVersion", 0, "p"},
	getErrorString:       {"ncclGetErrorString", 0, "i"},
	getLastError:         {"ncclGetLastError", 0, "p"},
	getUniqueID:          {"ncclGetUniqueId", 0, "p"},
	commInitRankConfig:   {"ncclCommInitRankConfig", 0, "piuip"},
	commSplit:            {"ncclCommSplit", 0, "piipp"},
	commShrink:           {"ncclCommShrink", 22700, "ppippi"},
	commAbort:            {"ncclCommAbort", 0, "p"},
	commRevoke:           {"ncclCommRevoke", 22800, "pi"},
	commFinalize:         {"ncclCommFinalize", 0, "p"},
	commDestroy:          {"ncclCommDestroy", 0, "p"},
	commGetAsyncError:    {"ncclCommGetAsyncError", 0, "pp"},
	commUserRank:         {"ncclCommUserRank", 0, "pp"},
	commCount:            {"ncclCommCount", 0, "pp"},
	commRegister:         {"ncclCommRegister", 21900, "ppzp"},
	commDeregister:       {"ncclCommDeregister", 21900, "pp"},
	memAlloc:             {"ncclMemAlloc", 21900, "pz"},
	memFree:              {"ncclMemFree", 21900, "p"},
	redOpCreatePreMulSum: {"ncclRedOpCreatePreMulSum", 0, "ppiip"},
	redOpDestroy:         {"ncclRedOpDestroy", 0, "ip"},
	groupStart:           {"ncclGroupStart", 0, ""},
	groupEnd:             {"ncclGroupEnd", 0, ""},
	allReduce:            {"ncclAllReduce", 0, "ppziipp"},
	reduce:               {"ncclReduce", 0, "ppziiipp"},
	broadcast:            {"ncclBroadcast", 0, "ppziipp"},
	allGather:            {"ncclAllGather", 0, "ppzipp"},
	reduceScatter:        {"ncclReduceScatter", 0, "ppziipp"},
	send:                 {"ncclSend", 0, "pziipp"},
	recv:                 {"ncclRecv", 0, "pziipp"},
}

func (f function) String() string { return functions[f].name }

// Version is a version as people write it, of NCCL's number.
func Version(n int) string {
	if n < 10000 { // before 2.9
		return fmt.Sprintf("%d.%d.%d", n/1000, n/100%10, n%100)
	}
	return fmt.Sprintf("%d.%d.%d", n/10000, n/100%100, n%100)
}

func minor(n int) string { return fmt.Sprintf("%d.%d", n/10000, n/100%100) }
