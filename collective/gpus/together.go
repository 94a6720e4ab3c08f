package gpus

import (
	"fmt"
	"strings"

	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/rpc"
)

// called is what a member says of a Run.
type called struct {
	Calls    []operation
	Line     string
	Captures bool // into a graph, to be done later
}

// operation is a call without addresses.
type operation struct {
	Kind       nccl.Kind
	Count      int
	Type       nccl.DataType
	Op         nccl.RedOp // what members have made themselves is one
	Root, Peer int
}

func saying(calls []nccl.Call, line string, captures bool) called {
	c := called{Line: line, Captures: captures}
	for _, x := range calls {
		o := operation{Kind: x.Kind, Count: x.Count, Type: x.Type}
		if x.Kind.Sums() {
			o.Op = min(x.Op, nccl.Avg+1)
		}
		if x.Kind.Rooted() {
			o.Root = x.Root
		}
		if x.Kind.Paired() {
			o.Peer = x.Peer
		}
		c.Calls = append(c.Calls, o)
	}
	return c
}

func (o operation) call() nccl.Call {
	return nccl.Call{Kind: o.Kind, Count: o.Count, Type: o.Type, Op: o.Op, Root: o.Root, Peer: o.Peer}
}

func (o operation) String() string { return o.call().String() }

// together says whether what all members call goes together: the same collective operations in the
// same order, and for each send a receive. What they say may be anything.
func together(all []called) error {
	for r, one := range all {
		for _, o := range one.Calls {
			if err := o.call().Check(len(all)); err != nil {
				return fmt.Errorf("%w: rank %d: %w", rpc.ErrProtocol, r, err)
			}
		}
	}
	for r, one := range all {
		if a, b := essence(all[0]), essence(one); a != b || all[0].Captures != one.Captures {
			return differ(all, 0, r)
		}
		for _, call := range one.Calls {
			if call.Kind.Paired() && pairs(one, nccl.Send, call.Peer) != pairs(all[call.Peer], nccl.Recv, r) {
				return differ(all, r, call.Peer)
			}
			if call.Kind.Paired() && pairs(one, nccl.Recv, call.Peer) != pairs(all[call.Peer], nccl.Send, r) {
				return differ(all, r, call.Peer)
			}
		}
	}
	return nil
}

// essence is what is the same for all members.
func essence(c called) string {
	var b strings.Builder
	for _, call := range c.Calls {
		if !call.Kind.Paired() {
			fmt.Fprintln(&b, call)
		}
	}
	return b.String()
}

// pairs is what a member sends to another, or receives from it.
func pairs(c called, kind nccl.Kind, peer int) string {
	var b strings.Builder
	for _, call := range c.Calls {
		if call.Kind == kind && call.Peer == peer {
			fmt.Fprintln(&b, call.Count, call.Type)
		}
	}
	return b.String()
}

func differ(all []called, ranks ...int) error {
	e := &MismatchError{}
	for i, r := range ranks {
		var calls []string
		for _, call := range all[r].Calls {
			calls = append(calls, call.String())
		}
		e.Ranks[i], e.Calls[i], e.Lines[i] = r, strings.Join(calls, " and "), all[r].Line
		if all[r].Captures {
			e.Calls[i] += ", captured in a graph"
		}
	}
	return e
}
