package elastic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/weft-project/weft/store"
)

// rendezvousKeys is what the keys of every rendezvous in a store begin with, before the name of its job.
const rendezvousKeys = "rdzv/"

// RendezvousOf is the part of a store in which the nodes of a job meet, for rdzv.Look. It is not the caller's to close.
func RendezvousOf(job string, st store.Store) store.Store {
	return store.NewPrefix(rendezvousKeys+job, st)
}

// attempt is how long one attempt to reach the rendezvous' store takes, before what was wrong with it can be told.
const attempt = 5 * time.Second

// reach opens the rendezvous' store, trying again for as long as a node waits to join: whoever hosts it may come later.
func (m *meeting) reach(c context.Context) (store.Store, error) {
	open := m.spec.Meet
	if open == nil {
		if err := m.host(); err != nil {
			return nil, err
		}
		open = m.dial
	}
	c, cancel := context.WithTimeout(c, m.waits.patience)
	defer cancel()
	for n := 0; ; n++ {
		patience := attempt
		if m.taken && n == 0 { // a store of this machine would answer at once
			patience = attempt * 2 / 5
		}
		slice, cancel := context.WithTimeout(c, patience)
		st, err := open(slice)
		late := slice.Err() != nil
		cancel()
		if err == nil {
			return st, nil
		}
		if !late || c.Err() != nil {
			if errors.Is(c.Err(), context.Canceled) {
				return nil, context.Cause(c)
			}
			return nil, fmt.Errorf("elastic: the rendezvous at %s: %w", m.spec.Endpoint, m.suspect(err))
		}
		m.waits.lacks(m.suspect(err), m.taken && n == 0)
		if m.taken {
			if err := m.host(); err != nil {
				return nil, err
			}
		}
	}
}

// suspect says so where something listens at the endpoint that is no store.
func (m *meeting) suspect(err error) error {
	if m.spec.Meet != nil || m.hosts || !errors.Is(err, store.ErrUnreachable) {
		return err
	}
	conn, closed := net.DialTimeout("tcp", m.spec.Endpoint, time.Second)
	if closed != nil {
		return err
	}
	_ = conn.Close()
	if m.taken {
		return fmt.Errorf("something listens there that does not answer as a store, and it is on this machine: end it, or take another port; if it is a node of this job, give both the same token, so that they speak TLS, or none (%w)", err)
	}
	return fmt.Errorf("something listens there that does not answer as a store; is that the address, and do all machines have the same token, so that they speak TLS, or none? (%w)", err)
}

// host serves the store at the endpoint if this machine can. Where the port is taken that may well be by the store, another node's of this machine;
// if it is not, the node says so and waits on, as for any other store: whoever has it may end, and the store come.
func (m *meeting) host() error {
	cfg := m.spec.Store
	cfg.Addr = m.spec.Endpoint
	server, err := store.Serve(cfg)
	if err == nil {
		m.closes, m.hosts = append(m.closes, server.Close), true
	} else if m.taken = errors.Is(err, syscall.EADDRINUSE); !m.taken && !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("elastic: the rendezvous at %s: %w", m.spec.Endpoint, err)
	}
	return nil
}

func (m *meeting) dial(c context.Context) (store.Store, error) {
	client, err := store.Dial(c, store.ClientConfig{Addr: m.spec.Endpoint, TLS: m.spec.Store.TLS})
	if err != nil {
		return nil, err
	}
	return client, nil
}

// towards is the address of this machine that the first host of an endpoint would see.
func towards(endpoint string) string {
	if i := strings.IndexAny(endpoint, ",/"); i >= 0 {
		endpoint = endpoint[:i]
	}
	conn, err := net.Dial("udp", endpoint) // sends nothing
	if err != nil {
		return "127.0.0.1"
	}
	defer conn.Close()
	host, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	return host
}
