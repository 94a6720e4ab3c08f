package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/codec"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/payload"
	"github.com/weft-project/weft/rpc/internal/tracing"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/trace"
	"github.com/weft-project/weft/transport"
)

// inbound is a call that this worker serves, from its arrival to its answer.
type inbound struct {
	callContext
	m     *transport.Message
	h     wire.CallHeader
	fn    *handler
	work  context.Context // the handler's: the call's, in the pass
	leave func()          // the pass; nil where there is none

	claimed atomic.Bool // somebody answers
	unhook  func() bool // from waiting; guarded by mu

	began time.Duration // when the function began, by the worker's clock
	err   error         // what the call ended with
}

// serveCall checks a call and lets it run, wait its turn, or refuses it. It takes over the message
// and what begin counted.
func (sv *serving) serveCall(p *membership.Peer, s transport.Stream, m *transport.Message) {
	w := sv.w
	in := &inbound{m: m}
	in.w, in.p, in.s = w, p, s
	err := in.h.Parse(m.Header)
	in.function, in.pass = in.h.Function, in.h.PassID()
	if in.span = w.calls.trace.Begin(in.h.Span); in.span != nil {
		in.span.Received = sizeOf(m)
	}
	if err == nil {
		if in.fn = sv.functions[in.h.Function]; in.fn == nil {
			err = fmt.Errorf("%w: %q; list it in the rpc.Config of %s", ErrNotServed, in.h.Function, w.name)
		}
	}
	if err != nil {
		sv.unserved.Add(1)
		in.refuse(err)
		return
	}
	in.fn.stats.InFlight.Add(1)
	in.start(in.h.Timeout)
	runs, refused := sv.gate.Arrive(p.Rank, in)
	if runs {
		in.execute()
		return
	}
	if refused != in {
		in.queueForTurn()
	}
	if refused != nil {
		running, queued := sv.gate.Bounds()
		refused.refuse(fmt.Errorf("%w: %s has %d calls running and %d waiting, as many as it may; %q was refused",
			ErrBusy, w.name, running, queued, refused.h.Function))
	}
}

// queueForTurn gives the call up where it ends before its turn has come.
func (in *inbound) queueForTurn() {
	stop := context.AfterFunc(in.full(), func() {
		if in.w.serving.gate.Leave(in.p.Rank, in) {
			in.refuse(fmt.Errorf("waiting for its turn: %w", ctx.AsTimeout(context.Cause(in.full()))))
		}
	})
	in.mu.Lock()
	in.unhook = stop
	in.mu.Unlock()
}

// refuse answers a call that never ran.
func (in *inbound) refuse(err error) {
	in.err = err
	in.letGo(in.w.serving.reply(in.s, &wire.ReplyHeader{}, nil, err))
}

// letGo lets go of everything. err says why the stream cannot end in good order.
func (in *inbound) letGo(err error) {
	in.count(err)
	in.mu.Lock()
	if in.unhook != nil {
		in.unhook()
	}
	in.mu.Unlock()
	if in.leave != nil {
		in.leave()
	}
	in.stop()
	in.m.Release()
	in.s.Reset(err)
	in.w.load.Finish()
}

// count counts how the call ended. answer says what went wrong with the answer.
func (in *inbound) count(answer error) {
	if in.err == nil {
		in.err = answer
	}
	in.endSpan()
	if in.fn == nil {
		return
	}
	in.fn.stats.End(outcomeOf(in.err))
}

// endSpan ends the callee's span.
func (in *inbound) endSpan() {
	kind := tracing.SpanCall
	if in.h.Ref != nil {
		kind = tracing.SpanRemote
	}
	in.w.calls.trace.End(in.span, trace.Callee, kind, in.h.Function, in.p.Name, in.h.PassID(), in.err)
}

// freePlace frees the place of a call that ran.
func (sv *serving) freePlace() {
	w := sv.w
	if in, ok := sv.gate.Done(); ok {
		w.calls.pool.Do(in.execute)
	}
}

// execute runs the function on this goroutine, and answers where the result is there.
func (in *inbound) execute() {
	defer in.w.serving.freePlace()
	in.began = in.w.calls.clock.Now()
	ran := false
	defer func() { // a function that ends its goroutine
		if !ran {
			in.finish(nil, in.recovered(recover()))
		}
	}()
	out, later, err := in.invoke()
	ran = true
	if later == nil {
		in.finish(out, err)
		return
	}
	stop := context.AfterFunc(in.work, func() { in.finish(nil, ctx.AsTimeout(context.Cause(in.work))) })
	later.whenDone(func() {
		in.w.calls.pool.Do(func() {
			stop()
			in.finish(in.result(later))
		})
	})
}

// recovered is the error for a request that made this worker panic: a bug of ours, which must not
// be a peer's weapon.
func (in *inbound) recovered(r any) error {
	if r == nil {
		return errUnanswered
	}
	err := &panicError{r, stack()}
	in.w.logPanic("a request made this worker panic", in.p, in.h.Function, err)
	return err
}

// finish answers, once, and ends the call.
func (in *inbound) finish(out any, err error) {
	if !in.claimed.CompareAndSwap(false, true) {
		return
	}
	in.fn.stats.Observe(in.w.calls.clock.Now() - in.began)
	in.err = err
	end, answered := errUnanswered, false
	defer func() {
		if !answered {
			err := in.recovered(recover())
			in.err = err
			in.made(nil, err)
			end = errors.Join(err, in.w.serving.reply(in.s, &wire.ReplyHeader{}, nil, err))
		}
		in.letGo(end)
	}()
	end = in.answer(out, err)
	answered = true
}

// result is a future's; the same rules hold for it as for a function's own.
func (in *inbound) result(later pending) (any, error) {
	out, err := later.result()
	if err == nil {
		err = in.stale()
	}
	in.w.logPanic("a function panicked", in.p, in.h.Function, err)
	return out, err
}

// stale says that a result is of no use any more: a pass that is gone cannot take it.
func (in *inbound) stale() error {
	cause := in.cause()
	if cause == nil && in.work != nil && in.work != context.Context(&in.callContext) {
		cause = context.Cause(in.work)
	}
	return ctx.AsTimeout(cause)
}

// invoke enters the pass, unpacks the arguments and runs the function.
func (in *inbound) invoke() (out any, later pending, err error) {
	in.work = &in.callContext
	if in.h.Pass != nil {
		if in.work, in.leave, err = in.w.serving.enterPass(&in.callContext, in.h.Pass); err != nil {
			return nil, nil, err
		}
	}
	if in.h.Ref != nil {
		if err := in.w.refs.serve(in.p, *in.h.Ref); err != nil {
			in.h.Ref = nil // it is not this call's
			return nil, nil, err
		}
	}
	out, later, err = in.fn.call(in.work, in)
	in.w.logPanic("a function panicked", in.p, in.h.Function, err)
	if err == nil && later == nil {
		err = in.stale()
	}
	return out, later, err
}

// made gives the result to the references of a call that keeps it here.
func (in *inbound) made(out any, err error) {
	if in.h.Ref == nil {
		return
	}
	var v reflect.Value
	if err == nil {
		v = reflect.ValueOf(out).Elem()
	}
	in.w.refs.made(*in.h.Ref, v, err)
}

// answer sends the result, or keeps it and says so. A value that failed is dropped before the
// caller hears of it.
func (in *inbound) answer(out any, err error) error {
	if errors.Is(err, errUnanswered) {
		in.made(nil, err)
		return err
	}
	if in.h.Ref == nil {
		in.err, err = in.w.serving.answer(in.work, in.p, in.s, in.fn, out, in.h.Ticket, err)
		return err
	}
	if err == nil {
		err = check(in.work, in.fn.out, reflect.ValueOf(out).Elem())
	}
	in.err = err
	in.made(out, err)
	return in.w.serving.reply(in.s, &wire.ReplyHeader{}, nil, err)
}

// answer packs the result that out points to and sends it. wrong is what the peer is told instead,
// err why it cannot be told.
func (sv *serving) answer(c context.Context, p *membership.Peer, s transport.Stream, fn *handler, out any, ticket uint64, failed error) (wrong, err error) {
	w := sv.w
	h := &wire.ReplyHeader{}
	if failed != nil {
		return failed, sv.reply(s, h, nil, failed)
	}
	x := sv.answers.get()
	defer sv.answers.put(x)
	err = fn.out.Encode(&x.pack, out, &x.value)
	if err == nil && len(x.pack.Refs) > 0 && ticket == 0 {
		err = fmt.Errorf("%w: it holds references, which the caller's declaration does not", ErrArguments)
	}
	if err == nil && ticket != 0 {
		err = w.refs.answer(p, ticket)
	}
	if err == nil {
		err = x.share(c, w, p, ticket)
	}
	if err == nil {
		err = x.load(c, func(i int) (device.ID, error) { return p.Target(p.Back, x.pack.Tensors[i].Device()) })
	}
	if err == nil {
		err = payload.Computed(x.m.Tensors)
	}
	h.Refs, h.Value = x.shares, x.value.Bytes()
	var unsend func()
	if _, plain := c.(*callContext); err == nil && (!plain || len(x.pack.Tensors) > 0) { // without a pass there is nothing to record
		h.Pass, unsend, err = record(c, p, "the result of "+fn.name, x.pack.Tensors)
	}
	if err != nil {
		x.recall(w, p)
		err = fmt.Errorf("result: %w", err)
		return err, sv.reply(s, &wire.ReplyHeader{}, nil, err)
	}
	x.m.Header = x.head[:0]
	err = sv.reply(s, h, &x.m, nil)
	x.head = x.m.Header
	if err != nil {
		if unsend != nil {
			unsend()
		}
		x.recall(w, p)
	}
	if errors.Is(err, errNotDelivered) {
		return err, nil
	}
	return nil, err
}

// maxStack is how many lines of a panic's stack the log gets.
const maxStack = 64

// stack is where the goroutine is, a line for each function, without those of the runtime and of
// recovering.
func stack() []string {
	pcs := make([]uintptr, maxStack)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var lines []string
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") {
			lines = append(lines, fmt.Sprintf("%s (%s:%d)", f.Function, f.File, f.Line))
		}
		if !more {
			return lines
		}
	}
}

// logPanic puts a panic and its stack into the log; other errors are not its business.
func (w *Worker) logPanic(what string, p *membership.Peer, function string, err error) {
	if err == nil {
		return
	}
	var panicked *panicError // here, so that a call that succeeds allocates nothing
	if errors.As(err, &panicked) {
		logPanic(w.log, what, panicked, "worker", w.name, "peer", p.Name, "function", function)
	}
}

// logPanic makes one record: the stack is an attribute, with a line for each function.
func logPanic(log *slog.Logger, what string, p *panicError, where ...any) {
	log.Error(what, append(where, "panic", fmt.Sprint(p.value), "stack", strings.Join(p.stack, "\n"))...)
}

// check says what is wrong with the tensors and references in a value that is kept here for
// references. It waits for the values that calls under c make, as an answer does: they would end
// with it.
func check(c context.Context, cd *codec.Codec, v reflect.Value) error {
	p, err := cd.Collect(v)
	defer p.Unpin()
	for _, r := range p.Refs {
		if err == nil {
			err = (*ref)(r.(*pinnable)).settled(c)
		}
	}
	return err
}
