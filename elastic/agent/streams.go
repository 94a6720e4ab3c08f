package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Streams is a set of a worker's two outputs, numbered as torchrun does: 0 is none, 3 both.
type Streams uint8

// The outputs of a worker.
const (
	Stdout Streams = 1 << iota
	Stderr
)

// name is what messages call one of them.
func (s Streams) name() string {
	if s == Stdout {
		return "stdout"
	}
	return "stderr"
}

// Selection says which streams of which workers are meant. The zero value is none of nobody.
type Selection struct {
	All    Streams         // of those that ByRank does not name
	ByRank map[int]Streams // by local rank
}

// ParseSelection reads torchrun's notation: 0 (none), 1 (stdout), 2 (stderr) or 3 (both) for all
// workers, or for some of them by local rank, as in "0:3,1:1".
func ParseSelection(text string) (Selection, error) {
	if text == "" {
		return Selection{}, nil
	}
	if !strings.Contains(text, ":") {
		all, err := parseStreams(text)
		return Selection{All: all}, err
	}
	s := Selection{ByRank: map[int]Streams{}}
	var errs []error
	for pair := range strings.SplitSeq(text, ",") {
		rank, streams, _ := strings.Cut(strings.TrimSpace(pair), ":")
		n, err := strconv.Atoi(rank)
		if err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("expected RANK:STREAMS,… with local ranks, got %q", pair))
			continue
		}
		if _, twice := s.ByRank[n]; twice {
			errs = append(errs, fmt.Errorf("local rank %d is named twice", n))
		}
		if s.ByRank[n], err = parseStreams(streams); err != nil {
			errs = append(errs, fmt.Errorf("local rank %d: %w", n, err))
		}
	}
	return s, errors.Join(errs...)
}

func parseStreams(text string) (Streams, error) {
	if len(text) != 1 || text[0] < '0' || text[0] > '3' {
		return 0, fmt.Errorf("expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), got %q", text)
	}
	return Streams(text[0] - '0'), nil
}

// of is what is selected of one worker.
func (s Selection) of(localRank int) Streams {
	if one, named := s.ByRank[localRank]; named {
		return one
	}
	return s.All
}

// any says that something of some worker is selected.
func (s Selection) any() bool {
	return s.All != 0 || slices.ContainsFunc(slices.Collect(maps.Values(s.ByRank)), func(one Streams) bool { return one != 0 })
}

// check reports what is selected of workers that there are not.
func (s Selection) check(name string, workers int) error {
	var errs []error
	for _, rank := range slices.Sorted(maps.Keys(s.ByRank)) {
		errs = append(errs, checkRank(name, rank, workers))
	}
	for _, one := range append(slices.Collect(maps.Values(s.ByRank)), s.All) {
		if one > Stdout|Stderr {
			errs = append(errs, fmt.Errorf("%s: expected streams from 0 to 3, got %d", name, one))
		}
	}
	return errors.Join(errs...)
}

func checkRank(name string, rank, workers int) error {
	if rank < 0 || rank >= workers {
		return fmt.Errorf("%s: there is no local rank %d: they are 0 to %d", name, rank, workers-1)
	}
	return nil
}
