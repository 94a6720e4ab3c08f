package storecmd

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// noticeAfter is how long an operation waits before it says what it waits for.
const noticeAfter = 2 * time.Second

// within runs do for as long as the operation may take.
func (s *session) within(c context.Context, do func(context.Context) error) error {
	c, cancel := context.WithTimeout(c, s.flags.patience())
	defer cancel()
	return do(c)
}

// waiting is within for an operation that waits for keys. If that takes long, it says on standard
// error for which, and when it ends.
func (s *session) waiting(c context.Context, keys []string, do func(context.Context) error) error {
	c, cancel := context.WithTimeout(c, s.flags.patience())
	defer cancel()
	if s.flags.timeout <= noticeAfter {
		return do(c)
	}
	ended := make(chan error, 1)
	go func() { ended <- do(c) }()
	notice := time.NewTimer(noticeAfter)
	defer notice.Stop()
	select {
	case err := <-ended:
		return err
	case <-notice.C:
	}
	shown := make([]string, len(keys))
	for i, key := range keys {
		shown[i] = quoted(key)
	}
	fmt.Fprintf(s.err, "weft: waiting for %s; it ends after %v (--timeout)\n", strings.Join(shown, ", "), s.flags.timeout)
	return <-ended
}
