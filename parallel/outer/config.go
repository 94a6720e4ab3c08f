package outer

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/weft-project/weft/internal/zero"
)

// What can go wrong with a loop, beside what parallel and collective name.
var (
	// ErrConfig: settings that cannot be; the error lists all of them.
	ErrConfig = errors.New("bad configuration of an outer loop")
	// ErrApart: members do not stand at the same exchange, or at the same values. Regroup, also with
	// the same group, brings them together.
	ErrApart = errors.New("the members have come apart")
	// ErrNoState: under Each, those that had parameters, momentum and position are lost, or cut off.
	ErrNoState = errors.New("no member has the group's state")
)

// Wire is how outer gradients travel. They are summed in float32, whatever it is; what rounding
// takes from one exchange is added to the next of that fragment.
type Wire uint8

// The wires.
const (
	Float32  Wire = iota // 4 bytes an element
	BFloat16             // 2
	Int8                 // 1, with a scale for each 256
	Int4                 // 1/2, with a scale for each 256
)

func (w Wire) String() string {
	if names := []string{"float32", "bfloat16", "int8", "int4"}; int(w) < len(names) {
		return names[w]
	}
	return fmt.Sprintf("Wire(%d)", uint8(w))
}

// Config is how a loop goes. The zero value works; it is the same on all members.
type Config struct {
	// Every is how many inner steps come between two exchanges of a parameter; 0 means 50. The more,
	// the less travels, and the further workers drift apart.
	Every int
	// Fragments is in how many parts the parameters are exchanged, one after another, so that what
	// travels at once is smaller; 0 means 1. No part is empty.
	Fragments int
	// Delay is how many inner steps go on while an exchange is under way, less than
	// Every/Fragments; 0 waits for it. Choose it so that they take as long as the network does.
	Delay int
	// Mix is the share of the worker's own values when a result is applied, from 0 to less than 1:
	// new = Mix·own + (1−Mix)·synchronised. 0 drops what inner steps have made during the Delay.
	Mix float64
	// Wire is how outer gradients travel; float32 if 0.
	Wire Wire
	// FirstCalls has the first worker that has made its steps call the others, who join with what
	// they have made. Without it each makes as many steps as the others.
	FirstCalls bool
	// LR is the outer learning rate; 0 means 0.7, as in the paper.
	LR float64
	// Momentum is Nesterov's; 0 means 0.9, and optim.Zero is 0 itself.
	Momentum float64
	// Names are of the parameters, for errors. Without them parameters are told apart by number.
	Names []string
	// Changed is told of who is lost and who has come, on every member; nil: nobody is. A
	// newcomer is told, too: Came holds itself, and Lost is empty. It is called within New, Regroup
	// and, under Each, Step and Finish, and must not call the loop.
	Changed func(Change)
	// Listen is where a worker's links come in under Each, as rpc.Config has it; empty: at any port
	// of the address by which other nodes reach its own. Each worker has its own: where a node has
	// several (--nproc-per-node 2) add LOCAL_RANK to the port. Each ends where it cannot listen there.
	Listen string
	// Logger hears of links under Each, and why a worker waits for another epoch; default
	// slog.Default().
	Logger *slog.Logger
}

// alike is what must be the same on all members, one line each.
func (cfg Config) alike() (lines []string) {
	v := reflect.ValueOf(cfg)
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "Names", "Changed", "Listen", "Logger":
		default:
			lines = append(lines, fmt.Sprint(name, " ", v.Field(i)))
		}
	}
	return lines
}

// Change is what has become of a group.
type Change struct {
	Round   uint64   // the exchange that comes next, from 0
	Members []string // workers, by rank
	Rank    int      // of this one
	Lost    []string // that were members before, or have left
	Came    []string
}

// filled has the defaults in their places.
func (cfg Config) filled() Config {
	if cfg.Every == 0 {
		cfg.Every = 50
	}
	if cfg.Fragments == 0 {
		cfg.Fragments = 1
	}
	cfg.LR, cfg.Momentum = zero.Or(cfg.LR, 0.7), zero.Or(cfg.Momentum, 0.9)
	return cfg
}

// violations are all that is wrong with a filled configuration for so many parameters; nil:
// nothing.
func (cfg Config) violations(params int) error {
	var errs []error
	bad := func(format string, v ...any) { errs = append(errs, fmt.Errorf(format, v...)) }
	if cfg.Every < 1 {
		bad("Every is %d; expected 1 or more", cfg.Every)
	}
	switch most := min(params, max(cfg.Every, 1)); {
	case cfg.Fragments < 1 || cfg.Fragments > most:
		bad("Fragments is %d; expected 1 to %d, the number of parameters (%d) and Every (%d) at most", cfg.Fragments, most, params, cfg.Every)
	case cfg.Delay < 0 || cfg.Every > 0 && cfg.Delay >= cfg.Every/cfg.Fragments:
		bad("Delay is %d; expected 0 to %d, less than Every/Fragments", cfg.Delay, cfg.Every/cfg.Fragments-1)
	}
	if !(cfg.Mix >= 0 && cfg.Mix < 1) {
		bad("Mix is %v; expected 0 to less than 1", cfg.Mix)
	}
	if cfg.Wire > Int4 {
		bad("Wire is %v; expected Float32, BFloat16, Int8 or Int4", cfg.Wire)
	}
	if !(cfg.LR > 0 && cfg.LR <= 1e6) {
		bad("LR is %v; expected more than 0, to 1e6", cfg.LR)
	}
	if !(cfg.Momentum >= 0 && cfg.Momentum < 1) {
		bad("Momentum is %v; expected 0 to less than 1", cfg.Momentum)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConfig, errors.Join(errs...))
}
