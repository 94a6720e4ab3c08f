package rpc

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/transport"
)

// JobVariable names the job's id, of a worker whose Config has none; weft run and torchrun set it.
// Where nobody gives one it is NoJob.
const (
	JobVariable = transport.JobVariable
	NoJob       = transport.NoJob
)

// JobFromEnv reads the variable.
func JobFromEnv() string { return transport.JobFromEnv() }

// These variables name the files of a worker whose Config has neither a token nor certificates;
// they come before WEFT_TOKEN, which weft run always sets, and WEFT_TOKEN_FILE.
const (
	CAVariable   = transport.CAVariable
	CertVariable = transport.CertVariable
	KeyVariable  = transport.KeyVariable
)

// CertificatesFromEnv reads the variables. Where one is set, all are needed. The Job is left to the
// caller.
func CertificatesFromEnv() (transport.IdentityFiles, error) {
	return transport.CertificatesFromEnv()
}

// certified says whether there are certificates.
func certified(files transport.IdentityFiles) bool {
	return files.CA != "" || files.Cert != "" || files.Key != ""
}

// identity is this worker's proof of being of the job at its links; nil where the caller brings a
// network.
func (p *prepared) identity() (*transport.Identity, error) {
	if p.Network != nil {
		return nil, nil
	}
	return p.ownIdentity()
}

// ownIdentity is what the configuration or the environment names.
func (p *prepared) ownIdentity() (*transport.Identity, error) {
	files, token := p.Certificates, p.Token
	p.Job = cmp.Or(p.Job, JobFromEnv())
	var errs []error
	switch {
	case certified(files) && token != "":
		errs = append(errs, errors.New("both a token and certificates; expected one of them"))
	case !certified(files) && token == "":
		var err error
		if files, err = CertificatesFromEnv(); err == nil && !certified(files) {
			token, err = secret.FromEnv(os.Getenv)
		}
		if err != nil {
			return nil, err
		}
	}
	var id *transport.Identity
	var err error
	switch {
	case certified(files):
		files.Logger, files.Job = cmp.Or(files.Logger, p.Logger), cmp.Or(files.Job, p.Job)
		id, err = transport.IdentityFromFiles(files)
	case token != "":
		if token, err = transport.StrengthenToken(token, p.Job); err == nil {
			p.Token = token // so that what is slow is done once
			id, err = transport.IdentityFromToken(token, p.Job, cmp.Or(p.Name, "worker"), time.Now)
		}
	default:
		err = transport.ErrNoSecret
	}
	if errs = append(errs, err); errors.Join(errs...) != nil {
		return nil, errors.Join(errs...)
	}
	return id, nil
}

// mayCome is the first rank, from one on, at which peers will take this worker; that one alone,
// unless it may have any. The error is why they do not take it at the first.
func (p *prepared) mayCome(from int) (rank int, err error) {
	for rank = from; rank < membership.MaxWorld; rank++ {
		name := cmp.Or(p.Name, membership.NameOf(rank))
		if p.vouches == nil || p.vouches(name, rank) == nil {
			return rank, nil
		}
		if err == nil {
			err = p.vouches(name, rank)
		}
		if !p.anyRank() {
			break
		}
	}
	return 0, err
}

// anyRank says whether the worker takes the rank that is free.
func (p *prepared) anyRank() bool { return p.Dynamic && p.Rank == 0 }

// network makes the default network, when the worker's name is known.
func (p *prepared) network() error {
	id, err := p.identity()
	if id == nil || err != nil {
		return err
	}
	p.vouches = id.Vouches
	if _, err := p.mayCome(p.Rank); err != nil {
		return fmt.Errorf("this worker's own certificate: %w", err)
	}
	p.Network, err = transport.New(transport.Config{Identity: id, Lanes: p.Lanes, LendCopies: p.LendCopies, Devices: p.Devices, Logger: p.Logger})
	return err
}
