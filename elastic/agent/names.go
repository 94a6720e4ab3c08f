package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// addresses are those of a host's name, IPv4 first. A name may have none yet, as that of a pod
// which is about to start.
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
	case strings.Contains(err.Error(), "no such host"):
		what = "a name there is not found, or not yet"
	case says(err, syscall.EHOSTUNREACH):
		what = fmt.Sprintf("there is no route to it (%v)", syscall.EHOSTUNREACH)
	case says(err, syscall.ENETUNREACH):
		what = fmt.Sprintf("there is no route to it (%v)", syscall.ENETUNREACH)
	case says(err, syscall.ECONNREFUSED):
		what = fmt.Sprintf("nothing listens there, or not yet (%v)", syscall.ECONNREFUSED)
	default:
		return nil
	}
	return &absent{what, err}
}

// says says whether err is of the system's error no, if only by its words: gRPC hands on nothing
// else.
func says(err error, no syscall.Errno) bool {
	return errors.Is(err, no) || strings.Contains(err.Error(), no.Error())
}
