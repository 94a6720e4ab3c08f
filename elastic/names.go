package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// addresses are those of a host's name, IPv4 first. A name may have none yet, as that of a pod which is about to start.
func (s *Spec) addresses(c context.Context, host string) ([]string, error) {
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{host}, nil
	}
	lookup := s.lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	all, err := lookup(c, host)
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(len(net.ParseIP(b).To4()), len(net.ParseIP(a).To4())) })
	return all, err
}

// named is addresses, asked again every second until c is over.
func (s *Spec) named(c context.Context, host string) ([]string, error) {
	for {
		all, err := s.addresses(c, host)
		if err == nil {
			return all, nil
		}
		select {
		case <-c.Done():
			return nil, cmp.Or(outOfReach(host, err), err)
		case <-time.After(time.Second):
		}
	}
}

// absent is what keeps a host from being reached, in words for people.
type absent struct {
	what string
	err  error
}

func (e *absent) Error() string { return e.what }
func (e *absent) Unwrap() error { return e.err }

// outOfReach says what keeps a host from being reached, nil where err does not tell.
func outOfReach(host string, err error) error {
	var name *net.DNSError
	what := ""
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		what = fmt.Sprintf("the name %q is not found, or not yet", host)
	case errors.As(err, &name):
		what = fmt.Sprintf("the name %q cannot be looked up now (%v)", host, name)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		what = fmt.Sprintf("there is no route to it (%v)", root(err))
	case errors.Is(err, syscall.ECONNREFUSED):
		what = fmt.Sprintf("nothing listens there, or not yet (%v)", syscall.ECONNREFUSED)
	default:
		return nil
	}
	return &absent{what, err}
}
