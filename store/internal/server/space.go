package server

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/who"
)

// space is a key space. What is in one of a server's two can be neither seen, counted, changed nor
// awaited from the other, and each has the server's limits for itself, so who fills one takes
// nothing from the other.
type space struct {
	state    *state.State
	arriving atomic.Int64 // bytes of half-read commands
	mark     []byte       // in front of its records in the journal
}

// guestsRecord marks a record as the guests'. It is no opcode.
const guestsRecord = 0xff

// reachable says whether other machines can connect to an address. What is not TCP does not leave
// the host.
func reachable(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// owner is whose process a client is, as the kernel says.
type owner struct {
	uid int
	err error // why it is not known
}

func ownerOf(nc net.Conn) owner {
	uid, err := who.UID(nc)
	return owner{uid, err}
}

// ours says whether the process is on this host and of a user that can read this process's memory
// anyhow. Where the kernel does not tell users apart, all of this host are taken for that one.
func (o owner) ours() bool {
	return o.err == nil && who.Trusted(o.uid) || errors.Is(o.err, who.ErrUnsaid)
}

func (o owner) String() string {
	if o.err != nil {
		return o.err.Error()
	}
	return fmt.Sprintf("a process of uid %d", o.uid)
}

// takesPlain says whether a client may do without TLS, or why not.
func (s *Server) takesPlain(o owner) error {
	const mine = "this host's processes of the store's own user and of root alone, unless its operator says otherwise"
	switch {
	case s.cfg.Plain == PlainAlways, s.cfg.Plain == PlainAuto && (o.ours() || s.cfg.TLS == nil && s.far):
		return nil
	case s.cfg.Plain == PlainNever:
		return refused("it speaks plain text, and this store takes TLS alone", nil)
	case s.cfg.TLS != nil:
		return refused(fmt.Sprintf("it speaks plain text, which is taken from %s: %v", mine, o), nil)
	}
	return refused(fmt.Sprintf("this store serves %s: %v", mine, o), nil)
}
