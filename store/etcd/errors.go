package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/internal/kv"
)

// fate is what became of a request that failed.
type fate int

const (
	refused fate = iota // it was not done, nor would it be if it came again
	unsent              // it was not done; it may be next time
	lost                // it may have been done
)

// fateOf reads it from an error of etcd's client.
func fateOf(err error) fate {
	code := status.Code(err)
	if told := (rpctypes.EtcdError{}); errors.As(err, &told) {
		code = told.Code()
	}
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.DataLoss:
		return refused
	case codes.ResourceExhausted:
		if errors.Is(err, rpctypes.ErrTooManyRequests) {
			return unsent
		}
		return refused
	case codes.Unavailable: // also no leader, a new leader, a member that stops: some of it leaves open what was done
		if text := err.Error(); strings.Contains(text, "transport: Error while dialing") ||
			strings.Contains(text, "transport: authentication handshake failed") {
			return unsent // there is no connection to any member
		}
	}
	return lost
}

// explain words a refusal.
func explain(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%w: more keys in one transaction than etcd's --max-txn-ops allows: %w", store.ErrTooLarge, err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), strings.Contains(err.Error(), "message larger than max"):
		return fmt.Errorf("%w: more bytes in one request than etcd's --max-request-bytes allows: %w", store.ErrTooLarge, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return fmt.Errorf("etcd refused: %w", err)
}

// try does what may be repeated, until it succeeds, is refused, or the operation is over.
func (s *etcdStore) try(o *kv.Operation, f func(c context.Context) error) error {
	last, err := persist(o.Context, f)
	if err != nil && o.Context.Err() != nil {
		return s.over(o, last)
	}
	return err
}

// persist is try for what is no operation: where c is over, err says nothing, and last is what went
// wrong before.
func persist(c context.Context, f func(c context.Context) error) (last, err error) {
	for n := 0; ; n++ {
		attempt, cancel := context.WithTimeout(c, patience(n, 0))
		err := f(attempt)
		cancel()
		switch {
		case err == nil, c.Err() != nil:
			return last, err
		case errors.Is(err, rpctypes.ErrCompacted): // for the caller to read again
			return last, err
		case fateOf(err) == refused:
			return last, explain(err)
		}
		last = err
		if !sleep(c, backoff(n)) {
			return last, c.Err()
		}
	}
}

// pause waits before the next attempt, after n+1 have failed, longer each time; last is why, if it
// is etcd's failure.
func (s *etcdStore) pause(o *kv.Operation, n int, last error) error {
	if sleep(o.Context, backoff(n)) {
		return nil
	}
	return s.over(o, last)
}

// sleep says whether it slept for all of d.
func sleep(c context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return c.Err() == nil
	case <-c.Done():
		return false
	}
}

// patience is for how long the attempt after n that failed may take, with so many bytes to send:
// etcd itself waits for 5 s and more for what a lost leader had been told, and a member that hangs
// never answers.
func patience(n, size int) time.Duration {
	return (3*time.Second + time.Duration(size>>20)*time.Second) << min(n, 5)
}

// backoff is a random time of up to 2, 4, 8, … 512 ms: those who got in one another's way part.
func backoff(n int) time.Duration {
	return rand.N(2*time.Millisecond<<min(n, 8)) + 1
}
