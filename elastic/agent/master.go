package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/store"
)

// ErrMaster is that the workers' store is said to be where it cannot be: not at the node with rank
// 0.
var ErrMaster = errors.New("that is no address of the workers' store")

// master is the address of the workers' store in a round: a new one in each, hosted by the node
// with rank 0, so that nobody finds what an earlier round has left.
func (m *meeting) master(c context.Context, p rdzv.Placement) (string, error) {
	key := workersStore(p.Round)
	// Rank 0 that says nothing is lost before that, and another round begins, which ends c.
	c, cancel := context.WithTimeout(c, m.spec.rendezvous().WithoutStore())
	defer cancel()
	if p.Rank != 0 {
		var b []byte
		err := persist(c, func() (err error) {
			b, err = m.st.Get(c, key)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("the address of the workers' store, which the node at %s hosts: %w", p.MasterAddr, err)
		}
		return string(b), m.spec.checkMaster(c, p, string(b))
	}
	host := m.spec.MasterAddr
	if host == "" {
		host = m.addr
	}
	port := m.spec.MasterPort
	if len(m.masters) > 0 {
		port = 0 // the one that was asked for is taken by the round before
	}
	all, err := m.spec.named(c, host)
	var server *store.Server
	if err == nil {
		server, err = serveAt(m.spec.Store, all, strconv.Itoa(port))
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) && m.addr != host { // the address of the node that had rank 0 before
		server, err = serveAt(m.spec.Store, []string{m.addr}, "0")
	}
	if err != nil {
		return "", fmt.Errorf("the job's store cannot listen on %s, port %d; give another port, or 0 for a free one: %w", host, port, err)
	}
	m.masters = append(m.masters, server)
	if len(m.masters) > 2 { // workers may be about to leave the last round, but not the one before
		_ = m.masters[0].Close()
		m.masters = m.masters[1:]
	}
	if p.Round > 2 {
		_, _ = m.st.Delete(c, workersStore(p.Round-3)) // a store that outlives the job is not to grow with its rounds
	}
	return server.Addr(), persist(c, func() error { return m.st.Set(c, key, []byte(server.Addr())) })
}

// checkMaster refuses an address of the workers' store that is neither of the node with rank 0 nor
// the one that this node was told. Names are looked up again while c lasts.
func (s *Spec) checkMaster(c context.Context, p rdzv.Placement, said string) error {
	at, err := storeAt(said)
	if err != nil {
		return err
	}
	for {
		var unknown error
		for _, host := range []string{p.MasterAddr, s.MasterAddr} {
			if host == "" {
				continue
			}
			all, err := s.addresses(c, host)
			if slices.ContainsFunc(all, func(one string) bool { return sameHost(one, at.Addr()) }) {
				return nil
			}
			if err != nil {
				unknown = err
			}
		}
		if unknown == nil {
			break
		}
		select {
		case <-c.Done():
			return fmt.Errorf("whether the workers' store is at %v: %w", at, unknown)
		case <-time.After(time.Second):
		}
	}
	where := "the node with rank 0 is at " + p.MasterAddr
	if s.MasterAddr != "" && s.MasterAddr != p.MasterAddr {
		where += ", and --master-addr is " + s.MasterAddr
	}
	return fmt.Errorf("%w: round %d is said to have it at %v, but %s; where that is meant, give the same --master-addr on all machines",
		ErrMaster, p.Round, at, where)
}

// storeAt is the address that a node has told of a store.
func storeAt(said string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(said)
	if err != nil || at.Port() == 0 {
		return at, fmt.Errorf("%w: expected an IP address and a port, got %q", ErrMaster, said[:min(len(said), 80)])
	}
	return at, nil
}

// sameHost says whether an address in text is the given one. Zones are each machine's own names.
func sameHost(text string, at netip.Addr) bool {
	one, err := netip.ParseAddr(text)
	return err == nil && one.WithZone("").Unmap() == at.WithZone("").Unmap()
}
