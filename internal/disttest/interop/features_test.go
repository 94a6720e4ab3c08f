//go:build interop

package interop

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	weft "github.com/weft-project/weft/store"
)

// What a release can is found by asking its ends, and not by its number.

// greeting is how clients open that greet: VALIDATE and PING, whose number comes back. Not all
// PING.
var greeting = []byte{0x00, 0xce, 0xf7, 0x85, 0x3c, 0x0d}

const validate = 5 // bytes of greeting are VALIDATE

// manner is how a release's clients speak.
type manner struct {
	greets bool
	delete byte // the opcode of DELETE_KEY, which the dialects have in different places
}

// manner listens to a client that asks for a DELETE_KEY.
func (p *torch) manner(t *testing.T) manner {
	t.Helper()
	if p.known != nil {
		return *p.known
	}
	const key = "no such key"
	at, tapes := between(t, p.theirs(t, nil))
	p.client(t, at, nil).call(t, "delete_key", key)
	first := spoken(tapes()).turns()
	last := bytes.TrimSuffix(first[len(first)-2], append(number(len(key)+1), "/"+key...))
	p.known = &manner{bytes.HasPrefix(first[0], greeting[:validate]), last[len(last)-1]}
	return *p.known
}

// dialect is what an end of ours must be told. Only one dialect cannot be told from the others.
func (p *torch) dialect(t *testing.T) weft.Dialect {
	t.Helper()
	if m := p.manner(t); !m.greets && m.delete == 7 {
		return weft.Dialect21
	}
	return weft.DialectAuto
}

// The opcodes of commands that only servers have whose clients greet. The others hang up.
const (
	opQueueLen = 16
	opListKeys = 17
	opBarrier  = 18
)

// features are the commands that not every server of PyTorch's has.
type features struct{ appends, queues, lists, barriers bool }

// features asks a server of theirs for each of them. named are more arguments of TCPStore.
func (p *torch) features(t *testing.T, named map[string]any) features {
	t.Helper()
	m, at := p.manner(t), p.theirs(t, named)
	one := string(number(1))
	key := one + "k"
	return features{
		appends:  at.knows(t, m, m.delete+1, key+key),
		queues:   at.knows(t, m, opQueueLen, key),
		lists:    at.knows(t, m, opListKeys, ""),
		barriers: at.knows(t, m, opBarrier, one+"b"+one),
	}
}

// number is a count or a length as it is sent.
func number(n int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

// knows says whether a server answers a command, or an empty CHECK behind it, rather than hang up.
func (s server) knows(t *testing.T, m manner, code byte, args string) bool {
	t.Helper()
	c, err := net.Dial("tcp", s.addr())
	require.NoError(t, err)
	defer c.Close()
	ask, check := []byte(nil), byte(4)
	if m.greets {
		ask, check = append(ask, greeting[:validate]...), 5
	}
	ask = append(append(ask, code), args...)
	_, err = c.Write(append(append(ask, check), number(0)...))
	require.NoError(t, err)
	n, _ := c.Read(make([]byte, 1))
	return n > 0
}
