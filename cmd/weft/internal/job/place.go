package job

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// Place is where a job meets, for somebody who looks at it and takes no part in it.
type Place struct {
	Job    string      // its id
	Shown  string      // the address, for people
	Proof  string      // of the token that was given; "" if none was
	TLS    *tls.Config // of the store; nil: it speaks plain text
	InEtcd bool
	Open   func(context.Context) (store.Store, error)
}

// Place says where the job of these flags meets.
func (f *Flags) Place() (*Place, error) {
	if f.endpoint == "" && f.masterAddr == "" && f.backend != "static" {
		return nil, errors.New("expected where the job meets: --rdzv-endpoint, as for weft run")
	}
	meet, err := f.meeting(2)
	if err != nil {
		return nil, err
	}
	f.runID = cmp.Or(f.runID, agent.NoRunID)
	files, err := f.Certificates()
	if err != nil {
		return nil, err
	}
	token := ""
	if files.CA == "" {
		if token, err = f.Token(); err != nil {
			return nil, err
		}
	}
	if token != "" {
		if token, err = transport.StrengthenToken(token, f.runID); err != nil {
			return nil, err
		}
	}
	served, _, err := f.store(token, f.runID)
	if err != nil {
		return nil, err
	}
	p := &Place{Job: f.runID, Shown: meet.endpoint, TLS: served.TLS, InEtcd: meet.etcd != nil, Open: meet.etcd.opener()}
	if token != "" {
		if p.Proof, err = agent.Proof(token, f.runID); err != nil {
			return nil, err
		}
	}
	if p.InEtcd {
		meet.etcd.config.Lease = 0 // who looks keeps nothing alive
		return p, nil
	}
	p.Open = func(c context.Context) (store.Store, error) {
		return store.Dial(c, store.ClientConfig{Addr: p.Shown, TLS: p.TLS})
	}
	return p, nil
}
