package client

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/wire"
)

// link is one connection of a client, used by one operation at a time.
type link struct {
	nc    net.Conn
	in    *wire.Decoder // has the dialect, too
	out   []byte
	idle  time.Time // since when nobody uses it
	bound time.Time // nc's deadline
	end   time.Time // of the operation that uses it

	expire func()        // interrupts reads and writes
	over   atomic.Bool   // expire runs or has run, and the operation has not heard of it
	fired  chan struct{} // capacity 1: expire has run
	stop   func() bool   // keeps expire from running; nil if nobody would run it

	// Of the operation that uses it:
	sent    effect         // the worst of the commands of which something was sent and no answer has come
	owed    *state.Command // the operation was over before its answer, of which nothing has been read
	settled bool           // the operation failed and left nothing to be read: it was told so, or sent nothing
	late    bool           // its time is over, though what it asked last was answered
}

// outKept is how large a buffer a link keeps.
const outKept = 64 << 10

// errGivenUp ends a wait that was cancelled.
var errGivenUp = errors.New("given up")

func longAgo() time.Time { return time.Unix(1, 0) }

func newLink(nc net.Conn, w wire.Protocol, limits kv.Limits) *link {
	l := &link{nc: nc, in: wire.NewDecoder(nc, w, limits), fired: make(chan struct{}, 1)}
	l.expire = func() {
		l.over.Store(true) // first, see until
		_ = nc.SetDeadline(longAgo())
		l.fired <- struct{}{}
	}
	return l
}

// arm bounds the use of the connection by the operation's time.
func (l *link) arm(k *call) {
	l.sent, l.owed, l.settled, l.late, l.end = reads, nil, false, false, k.deadline
	if _, bounded := k.c.Deadline(); bounded && k.c.Done() != nil {
		l.until(time.Time{})
	} else {
		l.until(k.deadline)
	}
	if k.c.Done() != nil {
		l.stop = context.AfterFunc(k.c, l.expire)
	}
}

// disarm ends that.
func (l *link) disarm() {
	if l.stop != nil && !l.stop() {
		<-l.fired
		l.over.Store(false)
		l.bound = longAgo()
	}
	l.stop = nil
}

// until sets the deadline of reads and writes; zero means none. It gives no time to an operation
// that is over: expire either shows here, or sets its deadline after this one.
func (l *link) until(t time.Time) {
	if l.bound.Equal(t) {
		return
	}
	l.bound = t
	_ = l.nc.SetDeadline(t)
	if l.over.Load() {
		l.bound = longAgo()
		_ = l.nc.SetDeadline(l.bound)
	}
}

// ask sends a command and reads its answer.
func (l *link) ask(cmd state.Command) (state.Reply, error) {
	if err := l.send(&cmd); err != nil {
		return state.Reply{}, err
	}
	return l.answer(&cmd)
}

// send sends commands. One that is not answered is followed by a question whose answer says that it
// was done: the empty CHECK.
func (l *link) send(cmds ...*state.Command) error {
	l.out = l.out[:0]
	worst := reads
	for _, cmd := range cmds {
		var err error
		if l.out, err = l.in.AppendCommand(l.out, *cmd); err == nil && !l.in.Answered(cmd.Op) && cmd.Op != state.OpValidate {
			l.out, err = l.in.AppendCommand(l.out, state.Command{Op: state.OpCheck})
		}
		if err != nil {
			l.settled = l.sent == reads
			return err
		}
		worst = max(worst, effectOf(cmd.Op))
	}
	n, err := l.nc.Write(l.out)
	if n > 0 {
		l.sent = max(l.sent, worst)
	}
	if cap(l.out) > outKept {
		l.out = nil
	}
	return err
}

// answer reads the answer to a command that was sent.
func (l *link) answer(cmd *state.Command) (state.Reply, error) {
	if _, err := l.in.Reader.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
		return l.giveUp(cmd)
	}
	return l.read(cmd)
}

func waits(o state.Op) bool {
	return o == state.OpWait || o == state.OpFetch || o == state.OpReady || o == state.OpReach || o == state.OpBarrier
}

func (l *link) read(cmd *state.Command) (state.Reply, error) {
	expect := *cmd
	if !l.in.Answered(cmd.Op) {
		expect = state.Command{Op: state.OpCheck}
	}
	r, err := l.in.Reply(expect)
	if err == nil {
		l.sent = reads
		if err = r.Err; err != nil {
			l.settled = true
		}
	}
	return r, err
}

const (
	cancelGrace = 500 * time.Millisecond // what an operation overruns its time at most, to learn what became of it
	settleGrace = 5 * time.Second        // the same where nobody waits for it
)

// giveUp is for a command whose time is over. What became of a pop is learnt here, as what is taken
// from a queue must not be lost. The answer to any other is left to who gets the connection back,
// as a server may have work with every new connection (PyTorch's ask the resolver for a name, and
// nobody is served meanwhile).
func (l *link) giveUp(cmd *state.Command) (state.Reply, error) {
	if cmd.Op == state.OpPop {
		l.disarm()
		l.until(time.Now().Add(cancelGrace))
		l.late = true
		return l.read(cmd)
	}
	if !waits(cmd.Op) || l.cancels() {
		l.owed = cmd
	}
	return state.Reply{}, errGivenUp
}

func (l *link) cancels() bool { return l.in.Dialect != wire.Dialect113 }

// cancel takes a wait back. The answer may have been on its way: then it counts.
func (l *link) cancel(cmd *state.Command) (state.Reply, error) {
	sent := l.sent
	if err := l.send(&state.Command{Op: state.OpCancelWait}); err != nil {
		return state.Reply{}, err
	}
	r, err := l.read(cmd)
	if err != nil && !l.settled {
		return r, err
	}
	if r.Op == state.OpCancelWait {
		l.settled = true
		return r, errGivenUp
	}
	l.settled = false
	if _, after := l.in.Reply(state.Command{Op: state.OpCancelWait}); after != nil {
		l.sent = sent
		return r, after
	}
	l.settled = err != nil
	return r, err
}
