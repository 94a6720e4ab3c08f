package resilient

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/optim"
)

// Config is what a member brings. Params and Optimizer are required.
type Config struct {
	// Params are the parameters by name, as nn.Parameters gives them: leaves that require gradients.
	Params iter.Seq2[string, *autodiff.Tensor]
	// Optimizer steps them. It has their names: see optim.Named.
	Optimizer *optim.Local
	// Step is the one to come: how many steps the state has that this member brings. Members that
	// have come furthest give theirs to the others.
	Step uint64
	// Min is with how many members the team trains at least, 1 if 0: with fewer it waits for others.
	// Max is how many it has at most, any number if 0: newcomers beyond it wait.
	Min, Max int
	// Bucket is how many bytes of small gradients travel together, 1 MiB if 0.
	Bucket int
	// Changed is told of losses, newcomers, and of what the team waits for; nil: nobody is. It is
	// called within Step, and within New and Join of who gets the state, and must not call the team.
	// Under Each it is told who is lost and who has come between two epochs, too.
	Changed func(Change)
	// Made is told of every step that this member makes, also of those that it makes after the others
	// when it comes to them. It must not call the team; nil: nobody is.
	Made func(Made)
	// Save gives what else belongs to the state and is the same on all members, such as the seeds of
	// a program's own, and Load takes it over on a newcomer; both or none.
	Save func() ([]byte, error)
	Load func([]byte) error
	// Listen is where a worker's links come in under Each, as rpc.Config has it; empty: at any port
	// of the address by which other nodes reach its own. Each worker has its own.
	Listen string
	// Logger hears of what fails and is mended, and of what the team waits for; default
	// slog.Default().
	Logger *slog.Logger
}

// violations reports all that is wrong at once.
func (cfg Config) violations() error {
	var errs []error
	bad := func(format string, v ...any) { errs = append(errs, fmt.Errorf(format, v...)) }
	if cfg.Params == nil {
		bad("no Params; expected nn.Parameters(model)")
	}
	if cfg.Optimizer == nil {
		bad("no Optimizer")
	}
	if cfg.Min < 0 || cfg.Max < 0 || cfg.Max > 0 && cfg.Min > cfg.Max {
		bad("Min %d, Max %d; expected 0 or more, and Min at most Max", cfg.Min, cfg.Max)
	}
	if (cfg.Save == nil) != (cfg.Load == nil) {
		bad("one of Save and Load; expected both, or none")
	}
	if cfg.Bucket < 0 {
		bad("Bucket %d; expected bytes", cfg.Bucket)
	}
	if errs == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConfig, errors.Join(errs...))
}
