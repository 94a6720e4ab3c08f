package rpc

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"

	"github.com/weft-project/weft/internal/secret"
)

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
