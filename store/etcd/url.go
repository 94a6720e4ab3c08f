package etcd

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/weft-project/weft/store"
)

// Open makes the store of etcd://user:password@h1:2379,h2,h3/prefix?rank=…&world_size=…, where the
// user, ports and prefix may be left out. A program puts the password into the URL when it has read
// it from a file or its environment: on a command line everybody on the host would see it, and
// weft's commands take none there. Errors show neither user nor password. It is a store.Opener:
// store.OpenConfig{Schemes: map[string]store.Opener{"etcd": etcd.Open}}. With OpenConfig.TLS it
// speaks TLS, which with a job's own secret no etcd does; an Opener around this one may put the
// cluster's in its place.
//
// Unlike that of tcp://, the store is there before the job and stays when it ends: a job that
// starts again needs a prefix of its own, or the keys of the last are deleted before.
func Open(c context.Context, u store.URL, cfg store.OpenConfig) (store.Store, error) {
	config, err := FromURL(u, cfg)
	if err != nil {
		return nil, &store.Error{Op: "open", Addr: u.Scheme + "://" + withoutUser(u.Host) + u.Path, Err: err}
	}
	return Dial(c, config)
}

// FromURL is the Config that Open has of a URL; one that is wrong is store.ErrBadURL.
func FromURL(u store.URL, cfg store.OpenConfig) (Config, error) {
	config := Config{Prefix: u.Path, TLS: cfg.TLS, Timeout: cfg.Timeout, Limits: cfg.Limits}
	if hosts := withoutUser(u.Host); hosts != "" {
		config.Endpoints = strings.Split(hosts, ",")
	}
	if strings.Trim(u.Path, "/") == "" {
		config.Prefix = ""
	}
	if i := strings.LastIndexByte(u.Host, '@'); i >= 0 {
		user, password, _ := strings.Cut(u.Host[:i], ":")
		var err error
		if config.Username, err = url.PathUnescape(user); err == nil {
			config.Password, err = url.PathUnescape(password)
		}
		if err != nil {
			return Config{}, fmt.Errorf("%w: the user and password: not escaped as in a URL", store.ErrBadURL)
		}
	}
	if err := config.validate(); err != nil {
		return Config{}, fmt.Errorf("%w: %w", store.ErrBadURL, err)
	}
	return config, nil
}

// withoutUser is what may be shown of a URL's host.
func withoutUser(host string) string { return host[strings.LastIndexByte(host, '@')+1:] }
