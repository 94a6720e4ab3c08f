package who

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
)

// The kernel's sock_diag(7) by netlink: one question about the one socket with given addresses,
// answered from a hash table.

const (
	netlinkDiag  = 4  // NETLINK_SOCK_DIAG
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	headLen      = syscall.NLMSG_HDRLEN
	requestLen   = headLen + 8 + 48 // inet_diag_req_v2
	answerLen    = headLen + 4 + 68 // inet_diag_msg
	anyState     = 1<<32 - 1        // in a question about one socket it does not matter
	answerUID    = headLen + 4 + 60 // where they stand in an answer
	answerInode  = headLen + 4 + 64 //
	answerState  = headLen + 1      //
	patience     = 2                // seconds in which the kernel answers, or does not work
)

// errNoDiag is a kernel without it, or a sandbox that forbids it.
var errNoDiag = errors.New("the kernel has no sock_diag for TCP")

// diag finds a socket.
func diag(at, to netip.AddrPort) (socket, error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, netlinkDiag)
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return socket{}, os.NewSyscallError("socket", err)
	case err != nil:
		return socket{}, errNoDiag
	}
	defer syscall.Close(fd) //nolint:errcheck // nothing was written
	_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: patience})
	answer, err := ask(fd, request(at, to, anyState, 0))
	if errors.Is(err, syscall.ENOENT) { // so says a kernel that lacks it too; a list of no sockets tells them apart
		if _, none := ask(fd, request(at, to, 0, syscall.NLM_F_DUMP)); none != nil {
			return socket{}, errNoDiag
		}
		return socket{}, ErrNobody
	}
	if err != nil {
		return socket{}, errNoDiag
	}
	if len(answer) < answerLen {
		return socket{}, fmt.Errorf("sock_diag answers with %d bytes, expected %d", len(answer), answerLen)
	}
	return socket{state: int(answer[answerState]), uid: int(binary.NativeEndian.Uint32(answer[answerUID:])),
		inode: uint64(binary.NativeEndian.Uint32(answer[answerInode:]))}, nil
}

// ask sends a request and reads the answer to it.
func ask(fd int, request []byte) ([]byte, error) {
	if err := syscall.Sendto(fd, request, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return nil, err
	}
	answer := make([]byte, 4096)
	n, from, err := syscall.Recvfrom(fd, answer, 0)
	for err == syscall.EINTR { //nolint:errorlint // an errno of our own call
		n, from, err = syscall.Recvfrom(fd, answer, 0)
	}
	if err != nil {
		return nil, err
	}
	if sender, ok := from.(*syscall.SockaddrNetlink); !ok || sender.Pid != 0 || n < headLen+4 {
		return nil, syscall.EBADMSG // it is not the kernel's
	}
	if binary.NativeEndian.Uint16(answer[4:]) == syscall.NLMSG_ERROR {
		return nil, syscall.Errno(-int32(binary.NativeEndian.Uint32(answer[headLen:])))
	}
	return answer[:n], nil
}

// request is an nlmsghdr and an inet_diag_req_v2.
func request(at, to netip.AddrPort, states uint32, flags uint16) []byte {
	b := make([]byte, 0, requestLen)
	b = binary.NativeEndian.AppendUint32(b, requestLen)
	b = binary.NativeEndian.AppendUint16(b, diagByFamily)
	b = binary.NativeEndian.AppendUint16(b, syscall.NLM_F_REQUEST|flags)
	b = append(b, make([]byte, 8)...) // number and sender: the kernel answers this socket
	family := byte(syscall.AF_INET6)
	if at.Addr().Is4() {
		family = syscall.AF_INET
	}
	b = append(b, family, syscall.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, states)
	b = binary.BigEndian.AppendUint16(b, at.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	for _, a := range []netip.Addr{at.Addr(), to.Addr()} {
		raw := a.AsSlice()
		b = append(append(b, raw...), make([]byte, 16-len(raw))...)
	}
	b = binary.NativeEndian.AppendUint32(b, 0) // whichever interface
	b = binary.NativeEndian.AppendUint64(b, 1<<64-1)
	return b // the last was INET_DIAG_NOCOOKIE
}
