package rpc

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
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

// StoreTLSVariable says whether the workers of a job speak TLS with the store that they find by a
// URL (1, or 0). weft run sets it. Without it and without an agent that hosts the store, rank 0
// hosts it: then workers speak TLS, but where the store's host is their own machine's loopback
// address and they have no identity. Beside TLS the store takes plain text from its own machine
// alone, as a guest's. A job that needs 0 is one whose rank 0 is PyTorch's.
const StoreTLSVariable = "WEFT_STORE_TLS"

// StoreTLSFromEnv is for programs that open the job's store themselves by env://, for
// store.OpenConfig.TLS: as Join does it, by the identity that the environment names,
// CertificatesFromEnv before WEFT_TOKEN. It is nil where plain text is to be spoken.
func StoreTLSFromEnv() (*tls.Config, error) {
	return (&prepared{Config: Config{Logger: slog.Default()}}).storeTLS("env://")
}

func storeTLSAsked() (asked, said bool, err error) {
	text := os.Getenv(StoreTLSVariable)
	if text == "" {
		return false, false, nil
	}
	if asked, err = strconv.ParseBool(text); err != nil {
		return false, true, fmt.Errorf("$%s: expected 1 or 0, got %q", StoreTLSVariable, text)
	}
	return asked, true, nil
}

// storeTLS is for the store that Join opens. One that an agent hosts is of the identity in the
// environment that the agent gave; else the workers host it themselves, by the one that they are
// configured with.
func (p *prepared) storeTLS(rawURL string) (*tls.Config, error) {
	agent := os.Getenv("TORCHELASTIC_USE_AGENT_STORE") == "True"
	asked, said, err := storeTLSAsked()
	if !said {
		host := storeHost(rawURL)
		asked = !agent && p.Network == nil && host != "" && (!loopback(host) || p.identified())
	}
	if !asked || err != nil {
		return nil, err
	}
	if agent {
		p = &prepared{Config: Config{Logger: p.Logger}}
	}
	id, err := p.ownIdentity()
	if err != nil {
		return nil, fmt.Errorf("TLS with the job's store ($%s): %w", StoreTLSVariable, err)
	}
	return id.StoreTLS(), nil
}

// setApart says why a worker may see nobody in a store that workers host, "" if it does not: beside
// TLS that store has a key space for guests. With an agent all have the same setting.
func setApart(rawURL string, secure bool) string {
	const same = ": is $" + StoreTLSVariable + " the same for all?"
	_, said, _ := storeTLSAsked()
	switch {
	case storeHost(rawURL) == "" || os.Getenv("TORCHELASTIC_USE_AGENT_STORE") == "True":
		return ""
	case secure:
		return "this worker speaks TLS with its store, and sees none that does not" + same
	case said:
		return "this worker speaks plain text with its store, and sees none that speaks TLS" + same
	}
	return ""
}

// identified says whether the configuration or the environment names an identity, good or not.
func (p *prepared) identified() bool {
	files, err := CertificatesFromEnv()
	return p.Token != "" || certified(p.Certificates) || err != nil || certified(files) || secret.Named(os.Getenv) != ""
}

// storeHost is the host of a store's URL, "" where it has none.
func storeHost(rawURL string) string {
	u, err := url.Parse(rawURL)
	switch {
	case err != nil: // Open says what is wrong with it
	case u.Scheme == "env":
		return os.Getenv("MASTER_ADDR")
	case u.Scheme == "tcp":
		return u.Hostname()
	}
	return ""
}

// loopback says whether a host is its own machine's, as far as its text tells.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
