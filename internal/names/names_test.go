package names

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFewNamesAreListedInOrderAndTheOthersCounted(t *testing.T) {
	all := []string{"h", "g", "f", "e", "d", "c", "b", "a"}
	require.Equal(t, "a, b, c, d, e, f, g, h", List(all))
	require.Equal(t, "h", all[0], "the caller's are as they were")
	require.Equal(t, "a, b, c, d, e, f, g, h and 2 more", List(append(all, "x", "y")))
	require.Empty(t, List(nil))
}
