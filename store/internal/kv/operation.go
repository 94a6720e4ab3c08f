package kv

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Operation is one call of a Store's method, for those who write a Store: its name, its keys and
// its time. Its errors are worded as those of this package's stores.
type Operation struct {
	Context context.Context // of the caller, bounded by the store's timeout
	End     context.CancelFunc

	Start time.Time
	Name  string
	Addr  string
	Keys  []string
}

// Settings is what a store needs to begin its operations.
type Settings struct {
	Addr    string
	Timeout time.Duration
	Limits  Limits
}

// NewSettings names the store in its errors by addr. A timeout of 0 means DefaultTimeout.
func NewSettings(addr string, timeout time.Duration, limits Limits) Settings {
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	return Settings{addr, timeout, Defaulted(limits)}
}

// Begin bounds c by the store's timeout and refuses bad keys and a context that is over. The caller
// calls End when there was no error.
func (s Settings) Begin(c context.Context, name string, keys ...string) (*Operation, error) {
	o := &Operation{Start: time.Now(), Name: name, Addr: s.Addr, Keys: keys}
	if _, bounded := c.Deadline(); bounded {
		o.Context, o.End = c, func() {}
	} else {
		o.Context, o.End = context.WithTimeout(c, s.Timeout)
	}
	err := CheckKeys(s.Limits, keys)
	if err == nil && o.Context.Err() != nil {
		err = o.Over()
	}
	if err != nil {
		o.End()
		return nil, o.Fail(err)
	}
	return o, nil
}

// Over says why the operation's context is done.
func (o *Operation) Over() error {
	if errors.Is(o.Context.Err(), context.DeadlineExceeded) {
		return KeysTimeout(o.Name, o.limit(), o.Keys)
	}
	if cause := context.Cause(o.Context); !errors.Is(cause, o.Context.Err()) {
		return fmt.Errorf("%w: %w", o.Context.Err(), cause)
	}
	return o.Context.Err()
}

// limit is how long the operation had.
func (o *Operation) limit() time.Duration {
	deadline, _ := o.Context.Deadline()
	return max(0, deadline.Sub(o.Start))
}

// Fail dresses err; nil stays nil.
func (o *Operation) Fail(err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: o.Name, Addr: o.Addr, Err: err}
	if len(o.Keys) == 1 {
		e.Key = o.Keys[0]
	}
	return e
}

// maxNamed is how many keys an error names.
const maxNamed = 16

// KeysTimeout is worded as PyTorch's, whose users search for it: keys are shown with the slash put
// before them.
func KeysTimeout(op string, after time.Duration, keys []string) error {
	switch op {
	case "get", "multi_get", "pop":
		op = "wait" // what they do while they do not end
	case "barrier":
		if len(keys) == 1 {
			return &timeoutError{fmt.Sprintf("barrier timeout after %dms, key: /%s", after.Round(time.Millisecond).Milliseconds(), shown(keys[0]))}
		}
	}
	msg := fmt.Sprintf("%s timeout after %dms", op, after.Round(time.Millisecond).Milliseconds())
	for i, k := range keys {
		switch {
		case i == maxNamed:
			return &timeoutError{fmt.Sprintf("%s and %d more", msg, len(keys)-i)}
		case i == 0:
			msg += ", keys: /" + shown(k)
		default:
			msg += ", /" + shown(k)
		}
	}
	return &timeoutError{msg}
}

// CheckValues refuses values that are too long, each or all together.
func (s Settings) CheckValues(values ...[]byte) error {
	total := 0
	for _, v := range values {
		if err := CheckValue(s.Limits, v); err != nil {
			return err
		}
		total += len(v)
	}
	if total > s.Limits.Value && len(values) > 1 {
		return fmt.Errorf("%w: the values have %d bytes together, at most %d allowed", ErrTooLarge, total, s.Limits.Value)
	}
	return nil
}

// PollEvery is how often is looked for what nobody tells.
const PollEvery = 10 * time.Millisecond
