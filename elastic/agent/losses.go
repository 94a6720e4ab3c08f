package agent

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
)

// ErrOutput is matched by Result.Lost where something that the workers wrote could not be written.
var ErrOutput = errors.New("output was lost")

// losses remembers the first output of a Run that could not be written.
type losses struct {
	mu    sync.Mutex
	first error
}

// record takes an error of writing what is named. That nobody reads any more is no loss: see
// ErrNoReader.
func (l *losses) record(what string, err error) {
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = fmt.Errorf("%w: %s: %w", ErrOutput, what, err)
	}
}

func (l *losses) error() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

// ErrNoReader is matched by Run's error, or by Result.Lost, where nobody reads its output any more.
var ErrNoReader = errors.New("nobody reads the output any more")

// deserted takes it that nobody reads a stream any more. Where files have all that it was to show,
// the job goes on.
func (a *agent) deserted(stream Streams) {
	if err := a.missed(stream); err != nil {
		a.leaves(err)
	}
}

// missed is what is wrong with a stream that nobody reads any more: nothing where files have all
// that it was to show.
func (a *agent) missed(stream Streams) error {
	err := fmt.Errorf("%w (%s)", ErrNoReader, stream.name())
	if a.spec.Logs.keepsShown(stream, a.spec.NprocPerNode) {
		a.say(fmt.Sprintf("%v; the log files have it", err))
		return nil
	}
	return err
}

// unwritten is why output that workers made before they ended well is not where it should be, nil
// where it is.
func (a *agent) unwritten() error {
	for {
		select {
		case stream := <-a.unread:
			if err := a.missed(stream); err != nil {
				return err
			}
		default:
			return a.losses.error()
		}
	}
}
