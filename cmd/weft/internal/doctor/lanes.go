package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport"
)

const (
	lanesTimeout = 60 * time.Second       // for one lane, on the slowest of machines
	laneTime     = 200 * time.Millisecond // of each measurement
	laneTensor   = 16 << 20               // bytes
	laneEchoes   = 500
	laneTensors  = 16
)

// examineLanes makes a link in this process for each lane, and measures it unless quick.
func examineLanes(c context.Context, quick bool) []finding {
	var out []finding
	for _, lane := range transport.LaneNames() {
		if lane != transport.LaneCUDA { // it needs a GPU at both ends
			out = append(out, examineLane(c, lane, quick))
		}
	}
	return out
}

func examineLane(c context.Context, lane string, quick bool) finding {
	c, cancel := context.WithTimeout(c, lanesTimeout)
	defer cancel()
	f := finding{poor, "lane " + lane, ""}
	if lane == transport.LaneQUIC {
		f.verdict = bad // every link begins with it
	}
	l, err := newLoop(c, lane)
	if err != nil {
		f.text = "no link between two workers of this machine: " + err.Error()
		return f
	}
	defer l.stop()
	state := l.state(lane)
	if state.Why != "" {
		f.text = state.Why + laneAdvice(lane)
		return f
	}
	if f.verdict, f.text = good, "works"; quick {
		return f
	}
	text, err := l.measure(c, lane)
	if err != nil {
		return finding{bad, f.what, "it breaks: " + err.Error()}
	}
	f.text = text
	return f
}

// laneAdvice says what goes on without the lane.
func laneAdvice(lane string) string {
	if lane == transport.LaneLocal {
		return "; workers of this machine use QUIC and TLS connections instead, which is slower"
	}
	return "; large tensors go over QUIC instead, which is slower"
}

// loop is a link with both ends here; the far end answers.
type loop struct {
	listener     transport.Listener
	near, far    transport.Link
	answers      chan struct{} // closed when the far end has ended
	stream       transport.Stream
	tensor       transport.Tensor
	empty, heavy *transport.Message
}

// newLoop makes a loop over that lane alone, with a secret of its own.
func newLoop(c context.Context, lane string) (*loop, error) {
	id, err := transport.IdentityFromToken(transport.NewToken(), "doctor", "doctor", time.Now)
	if err != nil {
		return nil, err
	}
	n, err := transport.New(transport.Config{Identity: id, Lanes: []string{lane}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	l := &loop{answers: make(chan struct{}), empty: &transport.Message{}}
	if l.listener, err = n.Listen(c, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if l.near, err = n.Dial(c, l.listener.Addr()); err == nil {
		l.far, err = l.listener.Accept(c)
	}
	if err != nil {
		close(l.answers)
		l.stop()
		return nil, err
	}
	go l.answer()
	return l, nil
}

// stop ends both ends, and returns when nothing of them runs.
func (l *loop) stop() {
	if l.stream != nil {
		l.stream.Reset(nil)
	}
	for _, end := range []transport.Link{l.near, l.far} {
		if end != nil {
			_ = end.Close("measured")
			<-end.Done()
		}
	}
	_ = l.listener.Close()
	<-l.answers
	if l.tensor.Buf != nil {
		_ = l.tensor.Buf.Release() // it was made here
	}
}

// answer answers each message with an empty one.
func (l *loop) answer() {
	defer close(l.answers)
	c := context.Background() // ends with the link
	s, err := l.far.Accept(c)
	if err != nil {
		return
	}
	defer s.Reset(nil)
	for {
		m, err := s.Recv(c, nil)
		if err != nil {
			return
		}
		m.Release()
		if err := s.Send(c, l.empty); err != nil {
			return
		}
	}
}

func (l *loop) state(lane string) transport.LaneState {
	for _, s := range l.near.Lanes() {
		if s.Name == lane {
			return s
		}
	}
	return transport.LaneState{Name: lane, Why: "this version does not know it"}
}

// measure says how long an empty message and back takes, and what a large tensor, in numbers for
// people.
func (l *loop) measure(c context.Context, lane string) (string, error) {
	var err error
	if l.stream, err = l.near.Open(c); err != nil {
		return "", err
	}
	buf, err := device.Host().Alloc(laneTensor)
	if err != nil {
		return "", err
	}
	l.tensor = transport.Tensor{Dtype: device.Float32, Shape: device.Shape{laneTensor / 4}, Buf: buf}
	l.heavy = &transport.Message{Tensors: []transport.Tensor{l.tensor}}
	var says []string
	if !transport.TensorsAlone(lane) {
		echo, err := l.median(c, l.empty, laneEchoes)
		if err != nil {
			return "", err
		}
		says = append(says, fmt.Sprintf("a small call there and back takes %d µs", echo.Microseconds()))
	}
	took, err := l.median(c, l.heavy, laneTensors)
	if err != nil {
		return "", err
	}
	if lane == transport.LaneLocal {
		return strings.Join(append(says, fmt.Sprintf("a tensor of 16 MiB, lent in shared memory, %d µs", took.Microseconds())), ", "), nil
	}
	rate := laneTensor / max(took.Seconds(), 1e-9) / 1e9
	return strings.Join(append(says, fmt.Sprintf("a tensor of 16 MiB moves at %.2f GB/s", rate)), ", "), nil
}

// median is that of the time that m and its answer take, of at most n times after the first few; of
// fewer where they are slow.
func (l *loop) median(c context.Context, m *transport.Message, n int) (time.Duration, error) {
	var took []time.Duration
	warm := n / 8
	for begin := time.Now(); len(took) < n+warm; {
		start := time.Now()
		if err := l.stream.Send(c, m); err != nil {
			return 0, err
		}
		if _, err := l.stream.Recv(c, nil); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
		if time.Since(begin) > laneTime {
			break
		}
	}
	took = took[min(warm, len(took)-1):]
	slices.Sort(took)
	return took[len(took)/2], nil
}
