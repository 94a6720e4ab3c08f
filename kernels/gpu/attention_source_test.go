package gpu

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What attention_b64.cu and its like say of a kernel stands behind its name: the columns of a
// block, the rows of a tile, 16 rows of a warp, threads, blocks of a processor, and whether a warp
// holds its rows in registers. Of gradients of queries it always does.
func TestTheShapesOfAttentionAreWhatItsSourcesSay(t *testing.T) {
	line := regexp.MustCompile(`(?m)^(KERNEL|PLAIN|WITH_MORE)\((\w+), (\d+), (\d+), (\d+), (\d+), (\d+), \d+(?:, (true|false))?\)$`)
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		return n
	}
	seen := map[string]int{}
	for _, extent := range []int{64, 96, 128, 256} {
		text, err := os.ReadFile(fmt.Sprintf("internal/cu/attention_b%d.cu", extent))
		require.NoError(t, err)
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			d, wide, rows, threads := number(m[3]), number(m[4]), number(m[5]), number(m[7])
			require.Equal(t, extent, d, m[0])
			name := map[string]string{"FORWARD": "", "GRAD_Q": "grad_q", "GRAD_KV": "grad_kv"}[m[2]]
			require.Equal(t, name == "grad_q", m[8] == "", m[0])
			room := map[int]int{64: 64, 96: 128, 128: 128, 256: 256}[d] // attention_tiles.cuh's Room
			tall := threads / 2 * number(m[6])
			bytes, own := 4*rows*room*2+512, tall*room*2 // with the numbers of queries, which gradients of keys have
			if held := m[8] != "false"; held {
				bytes = max(bytes, own)
			} else {
				bytes += own
			}
			for more, of := range map[bool]string{false: "PLAIN", true: "WITH_MORE"} {
				if m[1] != "KERNEL" && m[1] != of {
					continue
				}
				seen[fmt.Sprint(name, d, more)]++
				require.Equal(t, shape{tall, wide, threads, 512 + bytes}, unitShape(d, name, more), m[0]) // it begins at a multiple of 512
			}
		}
		require.Equal(t, strings.Count(string(text), "\nKERNEL")+strings.Count(string(text), "\nPLAIN")+strings.Count(string(text), "\nWITH"),
			len(line.FindAllString(string(text), -1)), "each line is understood")
	}
	require.Len(t, seen, 4*3*2)
	for of, n := range seen {
		require.Equal(t, 1, n, of)
	}
}
