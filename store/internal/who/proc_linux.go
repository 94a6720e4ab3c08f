package who

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"
)

// proc finds a socket in /proc/net/tcp and tcp6, which take as long as there are sockets.
func proc(at, to netip.AddrPort) (socket, error) {
	for _, table := range []string{"tcp", "tcp6"} {
		s, err := procTable("/proc/thread-self/net/"+table, at, to)
		if err == nil || !os.IsNotExist(err) && err != ErrNobody { //nolint:errorlint // our own
			return s, err
		}
	}
	return socket{}, ErrNobody
}

func procTable(path string, at, to netip.AddrPort) (socket, error) {
	f, err := os.Open(path)
	if err != nil {
		return socket{}, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 10 || procAddr(fields[1]) != at || procAddr(fields[2]) != to {
			continue
		}
		state, errState := strconv.ParseUint(string(fields[3]), 16, 8)
		uid, errUID := strconv.ParseUint(string(fields[7]), 10, 32)
		inode, errInode := strconv.ParseUint(string(fields[9]), 10, 64)
		if errState != nil || errUID != nil || errInode != nil {
			return socket{}, fmt.Errorf("%s has a line that is not understood: %q", path, lines.Bytes())
		}
		return socket{state: int(state), uid: int(uid), inode: inode}, nil //nolint:gosec // of 32 bits
	}
	if err := lines.Err(); err != nil {
		return socket{}, err
	}
	return socket{}, ErrNobody
}

// procAddr reads 0100007F:1F90: words of the address as this machine has them in memory, and the
// port. A text that is none gives no address.
func procAddr(text []byte) netip.AddrPort {
	address, port, found := bytes.Cut(text, []byte(":"))
	raw := make([]byte, hex.DecodedLen(len(address)))
	n, err := strconv.ParseUint(string(port), 16, 16)
	if _, wrong := hex.Decode(raw, address); !found || err != nil || wrong != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	a, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a.Unmap(), uint16(n))
}
