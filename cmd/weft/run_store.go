package main

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// store says how the job's store is served. It has TLS where others than this machine's processes could reach it, or where the user says so;
// the workers learn of it by their environment.
func (f *runFlags) store(token, job string, nodes int) (cfg store.ServerConfig, variable string, err error) {
	if cfg.Plain, err = parsePlain(f.storePlain); err != nil {
		return cfg, "", fmt.Errorf("--store-plain: %w", err)
	}
	secure := !loopbackHost(cmp.Or(f.masterAddr, "localhost")) || cfg.Plain == store.PlainNever
	for _, host := range f.hosts() {
		secure = secure || !loopbackHost(host)
	}
	if text := os.Getenv(rpc.StoreTLSVariable); text != "" {
		if secure, err = strconv.ParseBool(text); err != nil {
			return cfg, "", fmt.Errorf("$%s: expected 1 or 0, got %q", rpc.StoreTLSVariable, text)
		}
	}
	if !secure {
		return cfg, rpc.StoreTLSVariable + "=0", nil
	}
	files, err := rpc.CertificatesFromEnv()
	if err != nil {
		return cfg, "", err
	}
	if token == "" && files.CA == "" && nodes > 1 {
		if cfg.Plain == store.PlainAlways { // somebody trusts the network
			return cfg, rpc.StoreTLSVariable + "=0", nil
		}
		return cfg, "", fmt.Errorf("several machines need the job's secret, the same on all: set $%s or --token-file, or say --store-plain always on a network that you trust",
			elastic.TokenVariable)
	}
	var id *transport.Identity
	if files.CA != "" {
		files.Job = job
		id, err = transport.IdentityFromFiles(files)
	} else {
		id, err = transport.IdentityFromToken(token, job, "the job's store", time.Now)
	}
	if err != nil {
		return cfg, "", err
	}
	cfg.TLS = id.StoreTLS()
	return cfg, rpc.StoreTLSVariable + "=1", nil
}
