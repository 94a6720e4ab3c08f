package callsite

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:noinline
func through(s *Stacks, depth int) *Stack {
	if depth > 0 {
		return through(s, depth-1)
	}
	return s.Here()
}

func TestAStackIsKnownAgainAndTellsTheUsersLine(t *testing.T) {
	var s Stacks
	var known []*Stack
	for range 3 {
		known = append(known, through(&s, 2))
	}
	_, file, line, _ := runtime.Caller(0)
	require.Same(t, known[0], known[2])
	at, called := known[0].Outside()
	require.Equal(t, file, at.File)
	require.Less(t, at.Line, line)
	require.Empty(t, called, "tests count as users, and are the nearest caller")
	require.NotSame(t, known[0], through(&s, 2), "another line")
}

func TestMoreStacksThanAreRememberedStartAfresh(t *testing.T) {
	var s Stacks
	for h := range uint64(MaxStacks + 10) {
		s.find(h)
	}
	require.LessOrEqual(t, len(s.of), MaxStacks)
}

func BenchmarkHere(b *testing.B) {
	var s Stacks
	for b.Loop() {
		s.Here()
	}
}
