package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc/internal/codec"
	"github.com/weft-project/weft/rpc/internal/counts"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// What can go wrong with calls and with joining.
var (
	ErrConfig        = errors.New("invalid configuration")
	ErrNoWorker      = errors.New("no worker in this context; make it with Worker.Context or Worker.Pass")
	ErrUnknownWorker = membership.ErrUnknownWorker
	ErrNotServed     = errors.New("function is not served")
	ErrArguments     = codec.ErrArguments
	ErrTimeout       = ctx.ErrTimeout
	ErrPeerLost      = ctx.ErrPeerLost // one sentinel for calls and passes, as for timeouts
	ErrPeerLeft      = membership.ErrPeerLeft
	ErrPanic         = errors.New("function panicked")
	ErrLeft          = membership.ErrLeft
	ErrRankTaken     = membership.ErrRankTaken
	ErrNameTaken     = membership.ErrNameTaken
	ErrWorldSize     = membership.ErrWorldSize
	ErrRefused       = membership.ErrRefused
	ErrProtocol      = wire.ErrProtocol
	ErrReleased      = errors.New("reference was released")
	ErrBusy          = membership.ErrBusy
	ErrCheckpoint    = errors.New("a checkpointed function must not call: it is run again when gradients arrive")
	ErrNotOwner      = errors.New("not the owner; use ToHere")
)

// Error says which worker failed to do what with which peer.
type Error struct {
	Worker   string // this worker
	Peer     string // may be empty
	Function string // or what was attempted
	Err      error
}

func (e *Error) Error() string {
	if e.Worker == "" { // it has no name yet
		return fmt.Sprintf("%s: %v", e.Function, e.Err)
	}
	if e.Peer == "" {
		return fmt.Sprintf("%s: %s: %v", e.Worker, e.Function, e.Err)
	}
	return fmt.Sprintf("%s: %s on %s: %v", e.Worker, e.Function, e.Peer, e.Err)
}

// Unwrap lets errors.Is find the cause.
func (e *Error) Unwrap() error { return e.Err }

// RemoteError is an error that a peer answered with. It matches (errors.Is) the sentinels that the
// error matched there, and (errors.As) the errors in it whose types this worker has listed in
// Config.Errors.
type RemoteError struct {
	Worker string // where it happened
	Type   string // what it was there, as a Go type
	Text   string // without control characters but line breaks and tabs
	kinds  []error
	causes []wire.Cause // as they came: to be passed on by workers that do not know the types
}

func (e *RemoteError) Error() string { return fmt.Sprintf("error on %s: %s", e.Worker, e.Text) }

// Unwrap gives the sentinels, and the errors that could be rebuilt.
func (e *RemoteError) Unwrap() []error { return e.kinds }

// portable are the sentinels that survive the trip. The position is part of the wire format: append
// only.
var portable = []error{
	ErrNotServed, ErrArguments, ErrTimeout, ErrPeerLost, ErrPanic, ErrLeft, ErrUnknownWorker, ErrProtocol, ErrReleased, ErrNotOwner,
	context.Canceled, context.DeadlineExceeded,
	ctx.ErrUnknownPass, ctx.ErrUnknownMessage, ctx.ErrStalled, ctx.ErrLeft, ctx.ErrProtocol,
	autodiff.ErrFreed, autodiff.ErrMixedPasses, autodiff.ErrDevices, autodiff.ErrDtype, autodiff.ErrFunction,
	autodiff.ErrNoGrad, autodiff.ErrNotScalar, autodiff.ErrGradient, autodiff.ErrGraphFreed,
	kernels.ErrOperands, kernels.ErrIndex, device.ErrBadMap, device.ErrNoDevice, device.ErrMemory, device.ErrBadShape,
	ErrRankTaken, ErrNameTaken, ErrWorldSize, ErrRefused, ErrPeerLeft, ErrConfig, ErrBusy, ErrResolved,
	autodiff.ErrAnomaly, autodiff.ErrRecompute, ErrCheckpoint, ErrNoWorker, device.ErrLost, autodiff.ErrMixedArenas, autodiff.ErrNotLeaf,
}

// outcomeOf classifies the error of a call. That somebody else was lost on the way is an error of
// the function, not the loss of its peer.
func outcomeOf(err error) counts.Outcome {
	if err == nil {
		return counts.OutcomeOK
	}
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	var remote *RemoteError
	var gone *CancelError
	switch {
	case is(ErrBusy):
		return counts.OutcomeBusy
	case is(ErrTimeout, context.DeadlineExceeded):
		return counts.OutcomeTimeout
	case errors.As(err, &gone) && is(ErrPeerLost, ErrPeerLeft):
		return counts.OutcomeLost
	case is(context.Canceled):
		return counts.OutcomeCancelled
	case errors.As(err, &remote):
		return counts.OutcomeError
	case is(ErrPeerLost, ErrPeerLeft, transport.ErrPeerLost, transport.ErrPeerClosed):
		return counts.OutcomeLost
	case is(ErrLeft, transport.ErrReset, transport.ErrClosed):
		return counts.OutcomeCancelled
	}
	return counts.OutcomeError
}
