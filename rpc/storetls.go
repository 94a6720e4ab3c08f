package rpc

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
)

// StoreTLSVariable says whether the workers of a job speak TLS with the store that they find by a URL (1, or 0). weft run sets it. Without it
// and without an agent that hosts the store, workers speak TLS where the store's host is not their own machine's loopback address. The
// store then takes plain text from its own machine alone.
const StoreTLSVariable = "WEFT_STORE_TLS"

// StoreTLSFromEnv is for programs that open the job's store themselves by env://, for store.OpenConfig.TLS: as Join does it, by the identity
// that the environment names, CertificatesFromEnv before WEFT_TOKEN. It is nil where plain text is to be spoken.
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

// storeTLS is for the store that Join opens. One that an agent hosts is of the identity in the environment that the agent gave; else the
// workers host it themselves, by the one that they are configured with.
func (p *prepared) storeTLS(rawURL string) (*tls.Config, error) {
	agent := os.Getenv("TORCHELASTIC_USE_AGENT_STORE") == "True"
	asked, said, err := storeTLSAsked()
	if !said {
		asked = !agent && p.Network == nil && beyondLoopback(rawURL)
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

// beyondLoopback says whether a store's URL names a host that others reach too, as far as its text tells.
func beyondLoopback(rawURL string) bool {
	u, err := url.Parse(rawURL)
	if err != nil {
		return false // Open says what is wrong with it
	}
	host := ""
	switch u.Scheme {
	case "env":
		host = os.Getenv("MASTER_ADDR")
	case "tcp":
		host = u.Hostname()
	}
	ip := net.ParseIP(host)
	return host != "" && host != "localhost" && (ip == nil || !ip.IsLoopback())
}
