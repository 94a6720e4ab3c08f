//go:build gpu && linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
)

// used is one of each thing, and what goroutines do with them until something is closed.
type used struct {
	*bench
	e     cuda.Event
	begin cuda.Timer
	mod   cuda.Module
	f     cuda.Func
	g     cuda.Graph
}

func newUsed(t *testing.T) *used {
	u := &used{bench: &bench{}}
	var errs [9]error
	u.d, errs[0] = native.Open(1)
	u.s, errs[1] = u.d.Stream()
	u.at, errs[2] = u.d.Alloc(256)
	u.pinned, errs[3] = u.d.Pin(256)
	u.e, errs[4] = u.d.Event()
	u.begin, errs[5] = u.d.Timer()
	u.mod, errs[6] = u.d.Load([]byte(ptx))
	u.f, errs[7] = u.mod.Func("double", 0)
	u.g, errs[8] = u.s.Capture(func() error { return u.s.Zero(u.at, 8) })
	require.NoError(t, errors.Join(errs[:]...))
	require.NoError(t, errors.Join(u.s.Record(u.begin), u.s.Record(u.e), u.e.Sync()))
	return u
}

func (u *used) calls() []func() error {
	return []func() error{
		func() error {
			var l cuda.List
			add(&l, u.f, u.at, u.at, 1)
			add(&l, u.f, u.at, u.at, 1)
			return u.s.Run(&l)
		},
		func() error {
			return errors.Join(u.s.CopyIn(u.at, u.pinned[:8]), u.s.Record(u.e), u.s.Wait(u.e), u.e.Sync())
		},
		func() error { return u.s.Replay(u.g) },
		func() error { return errors.Join(u.s.Copy(u.at+128, u.at, 8), u.s.Sync()) },
		func() error { _, err := u.begin.Since(u.begin); return err },
		func() error { _, err := u.mod.Func("add", 0); return err },
		func() error { _, err := u.d.Room(); return err },
	}
}

// eachOf is the errors that one joins, or that one.
func eachOf(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the error itself
		return all.Unwrap()
	}
	return []error{err}
}

func TestWhoUsesWhatIsClosedIsToldThatAndNothingElse(t *testing.T) {
	for name, closed := range map[string]func(u *used) error{
		"driver": func(u *used) error { return u.d.Close() },
		"stream": func(u *used) error { return u.s.Close() },
		"event":  func(u *used) error { return u.e.Close() },
		"graph":  func(u *used) error { return u.g.Close() },
		"module": func(u *used) error { return u.mod.Unload() },
	} {
		for range 5 {
			u := newUsed(t)
			var all sync.WaitGroup
			began := make(chan struct{}, 2*len(u.calls()))
			ended := make(chan struct{})
			for _, call := range append(u.calls(), u.calls()...) {
				all.Go(func() {
					began <- struct{}{}
					for {
						err := call()
						if err != nil && name == "module" {
							assert.ErrorContains(t, err, "module was unloaded")
							return
						}
						if err != nil {
							for _, one := range eachOf(err) {
								assert.ErrorIs(t, one, device.ErrClosed, name)
							}
							return
						}
						select {
						case <-ended:
							return
						default:
						}
					}
				})
			}
			for range cap(began) {
				<-began
			}
			assert.NoError(t, closed(u), name)
			close(ended)
			all.Wait()
			if name != "driver" {
				require.NoError(t, errors.Join(u.s.Close(), u.d.Free(u.at), u.d.Unpin(u.pinned), u.e.Close(), u.begin.Close(), u.g.Close(), u.d.Close()))
			}
			if t.Failed() {
				return
			}
		}
	}
}
