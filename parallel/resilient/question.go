package resilient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// pending is a question that waits for its answer.
type pending struct {
	to    string
	waits chan answer // of capacity 1
}

// answer is a letter that gives, with what it carries.
type answer struct {
	letter
	data *device.Buffer // on the host, if there is no error
	err  error
}

// content is what a letter carries, which the caller releases.
func content(l letter, tensors []transport.Tensor) (*device.Buffer, error) {
	switch {
	case l.Error != "":
		return nil, errors.New(l.Error)
	case len(tensors) != 1 || tensors[0].Buf == nil || l.Bytes < 0 || l.Bytes > tensors[0].Buf.Len():
		return nil, fmt.Errorf("%w: a piece of a state in %d tensors", rpc.ErrProtocol, len(tensors))
	}
	if _, err := tensors[0].Buf.Host(); err != nil {
		return downloaded(tensors[0].Buf, 0, tensors[0].Buf.Len())
	}
	return tensors[0].Buf.Retain(), nil
}

// mostGiven bounds how many answers to one member are under way. A newcomer has one question to
// each; another one may have come to nothing there.
const mostGiven = 2

// give answers a question.
func (m *mail) give(to string, l letter) {
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.giving[to]--; m.giving[to] == 0 {
			delete(m.giving, to)
		}
	}()
	c, cancel := context.WithTimeout(m.life, asking)
	defer cancel()
	l.Kind = letterGives
	var tensors []transport.Tensor
	buf, err := m.lookUp(&l)
	if err != nil {
		l.Error = err.Error()
	}
	if buf != nil {
		defer buf.Release() //nolint:errcheck // ours
		tensors = append(tensors, transport.Tensor{Dtype: device.Int32, Shape: device.Shape{buf.Len() / 4}, Buf: buf})
	}
	_ = m.post(c, to, l, tensors...) // see receive
}

// lookUp finds what a question asks for.
func (m *mail) lookUp(l *letter) (*device.Buffer, error) {
	s := m.keeps.of(l.Step)
	if s == nil {
		return nil, fmt.Errorf("the state before step %d is not kept here", l.Step)
	}
	if l.Entry < 0 {
		list, err := s.manifest()
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		return l.carry(raw)
	}
	if l.Entry >= len(s.entries) || l.Piece < 0 || l.Piece*piece >= s.entries[l.Entry].Bytes {
		return nil, fmt.Errorf("%w: there is no piece %d of tensor %d", rpc.ErrArguments, l.Piece, l.Entry)
	}
	buf, err := s.part(l.Entry, l.Piece)
	if err == nil {
		l.Bytes = buf.Len()
	}
	return buf, err
}

// carry puts a list into a buffer that goes with the letter: it may be more than a header holds.
func (l *letter) carry(b []byte) (*device.Buffer, error) {
	buf, mem, err := host.Zeros((len(b) + 3) / 4 * 4)
	if err == nil {
		l.Bytes = copy(mem, b)
	}
	return buf, err
}

// asking bounds how long a question takes.
const asking = 5 * time.Second

// question asks a member, waits for its answer, and gives that to take, which does not keep it.
func (m *mail) question(c context.Context, to string, l letter, take func(data []byte) error) error {
	c, cancel := context.WithTimeout(c, asking)
	defer cancel()
	waits := make(chan answer, 1)
	m.mu.Lock()
	m.last++
	l.Kind, l.ID = letterAsks, m.last
	m.asked[l.ID] = pending{to, waits}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.asked, l.ID)
		select {
		case a := <-waits: // it came too late
			host.Release(a.data)
		default:
		}
	}()
	if err := m.post(c, to, l); err != nil {
		return err
	}
	select {
	case a := <-waits:
		defer host.Release(a.data)
		if a.err != nil {
			return a.err
		}
		mem, err := a.data.Host()
		if err != nil {
			return err
		}
		return take(mem[:a.Bytes])
	case <-c.Done():
		return context.Cause(c)
	}
}
