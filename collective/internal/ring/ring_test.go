package ring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARingKeepsTheLastInOrder(t *testing.T) {
	for most := range 6 {
		r := New[int](most)
		var all []int
		for i := range 20 {
			require.Equal(t, append([]int(nil), all[max(0, len(all)-most):]...), r.All())
			require.Equal(t, uint64(i), r.Added())
			r.Add(i)
			all = append(all, i)
		}
	}
}
