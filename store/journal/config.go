package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// What can go wrong with a journal, apart from what the file system says.
var (
	ErrCorrupt  = errors.New("journal is corrupt")
	ErrLocked   = errors.New("journal is in use by another process, or twice by this one")
	ErrClosed   = errors.New("journal is closed")
	ErrTooLarge = errors.New("record is too large for the journal")
	ErrBusy     = errors.New("journal is being compacted")
)

// CorruptError says where the file is not what was written. It matches ErrCorrupt.
type CorruptError struct {
	Path   string
	Offset int64 // of the first byte that is not as it was written, or somewhat before; all records before it are whole
	Why    string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: %v at byte %d: %s", e.Path, ErrCorrupt, e.Offset, e.Why)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Policy is when what was written is brought from the system's memory to the disk. Between 0 and
// that moment, records outlive a crash of this process, and not one of the machine.
type Policy time.Duration

// The policies that are no interval.
const (
	Always Policy = 0  // before Commit returns
	Never  Policy = -1 // when the system does it
)

// ParsePolicy reads "always", "never" or an interval such as "100ms".
func ParsePolicy(s string) (Policy, error) {
	switch s {
	case "always":
		return Always, nil
	case "never":
		return Never, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("policy of syncing the journal is %q, expected always, never or an interval such as 100ms", s)
	}
	return Policy(d), nil
}

// String is what ParsePolicy reads.
func (p Policy) String() string {
	switch {
	case p == Always:
		return "always"
	case p < 0:
		return "never"
	}
	return time.Duration(p).String()
}

// Config says how safe a journal is and when it should be made shorter. The zero value works.
type Config struct {
	Sync   Policy
	Growth int          // Due is true when the file is so many times as large as the live data; 0 means 4, less means never
	Logger *slog.Logger // hears that a torn end was cut off; nil means nobody does

	disk disk // nil means the system's
	most int  // of bytes in a record; 0 means what fits
}

func (cfg Config) withDefaults() Config {
	if cfg.Growth == 0 {
		cfg.Growth = 4
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.disk == nil {
		cfg.disk = system{}
	}
	if cfg.most == 0 {
		cfg.most = maxPayload - recordHead
	}
	return cfg
}

func (cfg Config) checkRecord(record []byte) error {
	if len(record) > cfg.most {
		return fmt.Errorf("%w: it has %d bytes, at most %d allowed", ErrTooLarge, len(record), cfg.most)
	}
	return nil
}
