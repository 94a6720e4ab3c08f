package nccl

import (
	"fmt"
	"math"
	"runtime"
)

// Config says how a communicator is made. Zero is NCCL's own choice.
type Config struct {
	Name             string // what NCCL's own messages call it, from 2.27 on
	Net              string // the network plugin to use
	ClusterSize      int    // thread blocks that work together, on GPUs of compute capability 9.0
	MinCTAs, MaxCTAs int    // thread blocks for an operation
	SplitShare       bool   // what Split makes shares its parent's resources
	ShrinkShare      bool   // and what Shrink makes (2.27)
	TrafficClass     int    // of the network (2.26)
}

// layout is NCCL's configuration as of 2.27. Later ones are longer, earlier ones shorter; the
// library goes by size and version.
type layout struct {
	size         uint64
	magic        uint32
	version      uint32
	blocking     int32
	clusterSize  int32
	minCTAs      int32
	maxCTAs      int32
	net          *byte
	splitShare   int32
	trafficClass int32
	name         *byte
	collnet      int32
	ctaPolicy    int32
	shrinkShare  int32
	nvlsCTAs     int32
}

const (
	magic     = 0xcafebeef
	undefined = math.MinInt32 // has NCCL choose
	size218   = 48            // of the layout until 2.26
	size227   = 72
)

// packed is a configuration as a library of some version takes it: the oldest layout that has what
// is wanted, so that one packing serves all later libraries, too. Texts are pinned.
func (c Config) packed(version int, pin *runtime.Pinner) (*layout, error) {
	l := &layout{size: size218, magic: magic, version: oldest, splitShare: choice(c.SplitShare), shrinkShare: choice(c.ShrinkShare),
		collnet: undefined, ctaPolicy: undefined, nvlsCTAs: undefined}
	for _, f := range []struct {
		to        *int32
		is, least int
		name      string
	}{
		{&l.clusterSize, c.ClusterSize, 0, "ClusterSize"}, {&l.minCTAs, c.MinCTAs, 0, "MinCTAs"}, {&l.maxCTAs, c.MaxCTAs, 0, "MaxCTAs"},
		{&l.trafficClass, c.TrafficClass, 22600, "TrafficClass"},
	} {
		if *f.to = undefined; f.is == 0 {
			continue
		}
		if f.is < 0 || f.is > math.MaxInt32 {
			return nil, fmt.Errorf("%w: %s is %d; expected 0 (NCCL's choice) or more", ErrArgument, f.name, f.is)
		}
		if err := l.since(f.least, version, f.name); err != nil {
			return nil, err
		}
		*f.to = int32(f.is)
	}
	if c.ShrinkShare {
		if err := l.since(22700, version, "ShrinkShare"); err != nil {
			return nil, err
		}
	}
	if c.Net != "" {
		l.net = text(c.Net, pin)
	}
	if c.Name != "" && version >= 22700 {
		l.name = text(c.Name, pin)
		l.size, l.version = size227, 22700
	}
	return l, nil
}

// since has the layout be that of a version, where the library is not older.
func (l *layout) since(least, version int, field string) error {
	if version < least {
		return &Error{Op: functions[commInitRankConfig].name, Err: ErrMissing, Says: field + " in a configuration", Text: minor(least) + " or later has it"}
	}
	l.version = max(l.version, uint32(least))
	if l.version >= 22700 {
		l.size = size227
	}
	return nil
}

func choice(on bool) int32 {
	if on {
		return 1
	}
	return undefined
}

// text is a text as C reads it.
func text(s string, pin *runtime.Pinner) *byte {
	b := append([]byte(s), 0)
	pin.Pin(&b[0])
	return &b[0]
}
