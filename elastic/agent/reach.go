package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/store"
)

// rendezvousKeys is what the keys of every rendezvous in a store begin with, before the name of its
// job.
const rendezvousKeys = "rdzv/"

// RendezvousOf is the part of a store in which the nodes of a job meet, for rdzv.Look. It is not
// the caller's to close.
func RendezvousOf(job string, st store.Store) store.Store {
	return store.NewPrefix(rendezvousKeys+job, st)
}

// workersStore is the key, among those of the rendezvous, of the address of the workers' store in a
// round.
func workersStore(round int) string { return "master/" + strconv.Itoa(round) }

// WorkersStore is the host:port of the store in which the workers of a job meet in a round, ""
// where it is not there yet, or no more. st is that in which its nodes meet.
func WorkersStore(c context.Context, st store.Store, job string, round int) (string, error) {
	st, key := RendezvousOf(job, st), workersStore(round)
	there, err := st.Check(c, key)
	if err != nil || !there {
		return "", err
	}
	addr, err := st.Get(c, key)
	if err == nil {
		_, err = storeAt(string(addr))
	}
	if err != nil {
		return "", err
	}
	return string(addr), nil
}

// attempt is how long one attempt to reach the rendezvous' store takes, before what was wrong with
// it can be told.
const attempt = 5 * time.Second

// reach opens the rendezvous' store, trying again for as long as a node waits to join: whoever
// hosts it may come later, and its name, too.
func (m *meeting) reach(c context.Context) (store.Store, error) {
	c, cancel := context.WithTimeout(c, m.waits.patience)
	defer cancel()
	var why error
	for n := 0; ; n++ {
		patience := attempt
		if n == 0 { // what is wrong should be known when it is first told; a store of this machine would answer at once
			patience = attempt * 2 / 5
		}
		slice, cancel := context.WithTimeout(c, patience)
		st, err := m.try(slice)
		// The client of the store may see the deadline before the context does.
		late := slice.Err() != nil || errors.Is(err, context.DeadlineExceeded)
		cancel()
		if err == nil {
			return st, nil
		}
		if errors.Is(c.Err(), context.Canceled) {
			return nil, context.Cause(c)
		}
		said := m.suspect(err)
		var away *absent
		known := errors.As(said, &away)
		if why == nil || known || !errors.Is(err, context.DeadlineExceeded) { // that the time is over is no reason
			why = said
		}
		if c.Err() != nil || !late && !known {
			return nil, fmt.Errorf("the rendezvous at %s: %w", m.spec.Endpoint, why)
		}
		m.waits.lacks(why, m.taken && n == 0)
		if !late {
			select {
			case <-c.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// try opens the rendezvous' store, which this node hosts if it can.
func (m *meeting) try(c context.Context) (store.Store, error) {
	if m.spec.Meet != nil {
		return m.spec.Meet(c)
	}
	if err := m.host(c); err != nil {
		return nil, err
	}
	return m.dial(c)
}

// suspect says what is wrong, as far as can be known: whether there is somebody, and whether
// something listens at the endpoint that is no store.
func (m *meeting) suspect(err error) error {
	host, _, _ := net.SplitHostPort(m.spec.Endpoint)
	if why := outOfReach(host, err); why != nil {
		return why
	}
	switch {
	case errors.Is(err, store.ErrOtherJob):
		return fmt.Errorf("what listens there is of another job's id (--rdzv-id) than this node, or of another version of weft (%w)", err)
	case errors.Is(err, store.ErrNeedsTLS):
		return fmt.Errorf("the node that hosts the rendezvous has a secret, or certificates, and this one has none: "+
			"give it the same (--token-file or $%s, or --ca, --cert and --key) (%w)", elastic.TokenVariable, err)
	case errors.Is(err, store.ErrForeign), errors.Is(err, store.ErrStranger):
		return fmt.Errorf("what listens there is another user's: nodes of several users on one host "+
			"need the job's secret, the same for all, so that they speak TLS "+
			"(weft token makes one; set $%s) (%w)", elastic.TokenVariable, err)
	case m.spec.Meet != nil || m.hosts || !errors.Is(err, store.ErrUnreachable):
		return err
	}
	conn, closed := net.DialTimeout("tcp", m.spec.Endpoint, time.Second)
	if closed != nil {
		return err
	}
	_ = conn.Close()
	if m.taken {
		return fmt.Errorf("something listens there that does not answer as a store, and it is on this machine: end it, or take another port; if it is a node of this job, give both the same token, or certificates, so that they speak TLS, or none (%w)", err)
	}
	return fmt.Errorf("something listens there that does not answer as a store; is that the address, and do all machines have the same token, or certificates, so that they speak TLS, or none? (%w)", err)
}

// host serves the store at the endpoint if this machine can and does not yet. Where the port is
// taken that may well be by the store, another node's of this machine; if it is not, the node says
// so and waits on, as for any other store: whoever has it may end, and the store come.
func (m *meeting) host(c context.Context) error {
	if m.hosts {
		return nil
	}
	host, port, _ := net.SplitHostPort(m.spec.Endpoint)
	all, err := m.spec.addresses(c, host)
	if err != nil {
		return err
	}
	cfg := m.spec.Store
	if cfg.TLS != nil { // PyTorch's clients meet in the workers' store
		cfg.Plain = store.PlainNever
	}
	server, err := serveAt(cfg, all, port)
	if m.taken = errors.Is(err, syscall.EADDRINUSE); m.taken || errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil
	}
	if err == nil {
		m.closes, m.hosts = append(m.closes, server.Close), true
	}
	return err
}

// serveAt serves a store at the first of a host's addresses that is this machine's.
func serveAt(cfg store.ServerConfig, addresses []string, port string) (server *store.Server, err error) {
	for _, addr := range addresses {
		cfg.Addr = net.JoinHostPort(addr, port)
		if server, err = store.Serve(cfg); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			return server, err
		}
	}
	return nil, err
}

func (m *meeting) dial(c context.Context) (store.Store, error) {
	client, err := store.Dial(c, store.ClientConfig{Addr: m.spec.Endpoint, TLS: m.spec.Store.TLS})
	if err != nil {
		return nil, err
	}
	return client, nil
}
