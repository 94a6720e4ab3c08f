package reach

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// Why says why addr cannot be reached, where err or another attempt tells: "" means that
// something listens there.
func Why(err error, addr string) string {
	if text := whyNot(err, addr); text != "" || !errors.Is(err, store.ErrUnreachable) {
		return text
	}
	// A client that tries until its time is over may know no more than that.
	conn, err := net.DialTimeout("tcp", addr, probeTime)
	if err == nil {
		_ = conn.Close()
		return ""
	}
	if text := whyNot(err, addr); text != "" {
		return text
	}
	return fmt.Sprintf("%s cannot be reached: %v", addr, err)
}

// TakesTLS says whether what listens at addr takes TLS, whether or not it takes this identity:
// false where it answers a handshake otherwise, or hangs up without a word. Where nobody can be
// asked it is true.
func TakesTLS(c context.Context, addr string, conf *tls.Config) bool {
	var other tls.RecordHeaderError
	conn, err := (&tls.Dialer{Config: conf}).DialContext(c, "tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.As(err, &other)
}

// HasTLS says whether what listens at addr takes part in a handshake of TLS.
func HasTLS(c context.Context, addr string) bool {
	c, cancel := context.WithTimeout(c, probeTime)
	defer cancel()
	conf := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // nothing is said: is there TLS?
	conn, err := (&tls.Dialer{Config: conf}).DialContext(c, "tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || AnotherJob(err)
}

// probeTime is longer than a machine needs to learn that another one of its network is not there.
const probeTime = 4 * time.Second

// whyNot is what an error says of an address, "" if nothing.
func whyNot(err error, addr string) string {
	var name *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return fmt.Sprintf("the name %q is not known to this machine's name service, or not yet", name.Name)
	case errors.As(err, &name):
		return fmt.Sprintf("the name %q cannot be looked up: %s", name.Name, name.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens at %s, or not yet", addr)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTDOWN):
		return fmt.Sprintf("there is no route from this machine to %s, or that host is down", addr)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return fmt.Sprintf("this machine's firewall does not let it connect to %s", addr)
	case errors.Is(err, syscall.ETIMEDOUT), errors.As(err, &op) && op.Op == "dial" && op.Timeout():
		return fmt.Sprintf("%s does not answer: the host is down, or a firewall drops what is sent there", addr)
	}
	return ""
}

// AnotherJob says whether who listens has said that this is not of its job.
func AnotherJob(err error) bool {
	var alert *tls.AlertError
	return errors.Is(err, transport.ErrIdentity) || errors.As(err, &alert) || strings.Contains(err.Error(), "remote error: tls: ")
}

// Refusal says what to give to who listens and has said that this is not of its job, or shows too
// little, "" where nobody has.
func Refusal(err error) string {
	switch {
	case errors.Is(err, store.ErrNeedsTLS):
		return secrets.GiveOwn + ", and its --rdzv-id"
	case errors.Is(err, store.ErrOtherJob):
		return "give the id of its job, by --rdzv-id, and its secret, or certificates, if those differ, too"
	case AnotherJob(err):
		return "the job there has another secret than this, or other certificates, or it is another job's id: " +
			secrets.GiveOwn + ", and its --rdzv-id"
	}
	return ""
}

// Loopback says whether a host is this machine by its name or address.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
