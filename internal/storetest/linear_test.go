package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAHistoryThatNoOrderExplainsIsRefused(t *testing.T) {
	at := func(start, end int64, got string, model func(p *plain) string) call {
		return call{start: start, end: end, got: got, model: model}
	}
	add := func(p *plain) string { return p.addOne("k") }
	length := func(p *plain) string { return p.compareSet("k", "never", "") }
	empty := func() plain { return plain{data: map[string]string{}} }
	require.True(t, linear([]call{at(1, 4, "2", add), at(2, 3, "1", add)}, empty()), "they overlap")
	require.False(t, linear([]call{at(1, 2, "2", add), at(3, 4, "1", add)}, empty()), "the second answer is older")
	require.False(t, linear([]call{at(1, 4, "1", add), at(2, 3, "1", add)}, empty()), "one is lost")
	require.True(t, linear([]call{at(1, 9, "1", add), at(2, 3, "never", length), at(4, 5, "1", length)}, empty()))
	require.False(t, linear([]call{at(1, 9, "1", add), at(2, 3, "1", length), at(4, 5, "never", length)}, empty()), "it was there already")
}
