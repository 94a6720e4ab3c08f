package netns

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Path is what happens to a packet on its way between two hosts.
type Path struct {
	Delay time.Duration // one way
	Rate  float64       // bits in a second, of each host's uplink and of its downlink; 0: any number
	Loss  float64       // chance of a packet to vanish
	Cut   bool          // all vanish
}

// queued bounds the packets on their way to one host; what comes beyond is lost, as in any switch.
const queued = 4096

// port is one host's place at the switch.
type port struct {
	addr netip.Addr
	wire io.ReadWriteCloser
	out  chan parcel

	up, down time.Time // until when the host's links are busy, where they have a rate; under the switch's lock
}

type parcel struct {
	due    time.Time
	packet []byte
}

// Switch carries IPv4 packets between hosts. Packets from one host to another stay in order. It is
// safe for concurrent use.
type Switch struct {
	wg sync.WaitGroup

	mu    sync.Mutex
	rand  *rand.Rand
	path  Path
	cut   map[netip.Addr]bool // hosts that are cut off
	ports map[netip.Addr]*port
	stats Stats
}

// Stats counts packets.
type Stats struct{ Carried, Lost, Overflowed int }

// NewSwitch makes a switch whose losses follow from the seed.
func NewSwitch(seed uint64) *Switch {
	return &Switch{rand: rand.New(rand.NewPCG(seed, 0)), cut: map[netip.Addr]bool{}, ports: map[netip.Addr]*port{}}
}

// Set changes the path between all hosts. Packets that are on their way arrive as they would have,
// but for a cut.
func (s *Switch) Set(p Path) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.path = p
}

// CutOff cuts one host off from all others, or connects it again.
func (s *Switch) CutOff(host netip.Addr, off bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut[host] = off
}

// Stats so far.
func (s *Switch) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Plug connects a host: packets are read from and written to wire one at a time. The switch closes
// it.
func (s *Switch) Plug(addr netip.Addr, wire io.ReadWriteCloser) {
	p := &port{addr: addr, wire: wire, out: make(chan parcel, queued)}
	s.mu.Lock()
	s.ports[addr] = p
	s.mu.Unlock()
	s.wg.Go(func() { s.deliver(p) })
	s.wg.Go(func() { s.listen(p) })
}

// listen takes packets from a host until its wire is closed.
func (s *Switch) listen(p *port) {
	defer close(p.out) // no host sends to itself through the switch, and senders look for the port under the lock
	defer s.unplug(p)
	b := make([]byte, 64<<10)
	for {
		n, err := p.wire.Read(b)
		if err != nil {
			return
		}
		if to, ok := destination(b[:n]); ok {
			s.forward(time.Now(), p.addr, to, b[:n])
		}
	}
}

func (s *Switch) unplug(p *port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ports, p.addr)
}

// destination of an IPv4 packet.
func destination(packet []byte) (netip.Addr, bool) {
	if len(packet) < 20 || packet[0]>>4 != 4 || int(binary.BigEndian.Uint16(packet[2:])) != len(packet) {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(packet[16:20])), true
}

// forward decides about a packet.
func (s *Switch) forward(now time.Time, from, to netip.Addr, packet []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports[to]
	if p == nil || s.path.Cut || s.cut[from] || s.cut[to] || s.rand.Float64() < s.path.Loss {
		s.stats.Lost++
		return
	}
	select {
	case p.out <- parcel{s.due(now, s.ports[from], p, len(packet)), append([]byte(nil), packet...)}:
		s.stats.Carried++
	default:
		s.stats.Overflowed++
	}
}

// due is when a packet arrives: each link takes its time for the bits, one packet after another.
func (s *Switch) due(now time.Time, from, to *port, bytes int) time.Time {
	if s.path.Rate <= 0 || from == nil {
		return now.Add(s.path.Delay)
	}
	takes := time.Duration(float64(8*bytes) / s.path.Rate * float64(time.Second))
	from.up = later(now, from.up).Add(takes)
	to.down = later(from.up.Add(s.path.Delay), to.down.Add(takes))
	return to.down
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// deliver writes packets to a host when they are due.
func (s *Switch) deliver(p *port) {
	for x := range p.out {
		time.Sleep(time.Until(x.due))
		s.mu.Lock()
		cut := s.path.Cut || s.cut[p.addr]
		s.mu.Unlock()
		if !cut {
			_, _ = p.wire.Write(x.packet) // a host that is gone hears nothing
		}
	}
}

// Close unplugs all hosts.
func (s *Switch) Close() {
	s.mu.Lock()
	for _, p := range s.ports {
		_ = p.wire.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}
