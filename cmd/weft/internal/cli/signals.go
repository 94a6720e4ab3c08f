package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Signal is the error of a command that a signal ended.
type Signal syscall.Signal

func (s Signal) Error() string {
	return fmt.Sprintf("ended by signal %d (%v)", int(s), syscall.Signal(s))
}

// UntilSignal gives a context that the first signal to end cancels. The second one ends weft at
// once.
func UntilSignal(parent context.Context) (context.Context, func()) {
	return UntilSignals(parent, nil)
}

// UntilSignals is UntilSignal where the second signal is again's, and the third one ends weft
// at once; nil is nobody.
func UntilSignals(parent context.Context, again func()) (context.Context, func()) {
	c, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			if again == nil {
				signal.Stop(signals)
			}
			if sig, ok := s.(syscall.Signal); ok {
				cancel(Signal(sig))
			}
		case <-stopped:
			return
		}
		if again == nil {
			return
		}
		select {
		case <-signals:
			signal.Stop(signals)
			again()
		case <-stopped:
		}
	}()
	return c, func() {
		signal.Stop(signals)
		close(stopped)
		cancel(context.Canceled)
		<-done
	}
}
