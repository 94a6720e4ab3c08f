package elastic

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-project/weft/store"
)

// epochKeys is what the keys of an epoch begin with in the workers' store, before its number.
const epochKeys = "epoch-"

// EpochStore is the part of the workers' store that the workers of an epoch have for themselves. It
// is not the caller's to close.
func EpochStore(st store.Store, epoch int) store.Store {
	return store.NewPrefix(epochKeys+strconv.Itoa(epoch), st)
}

// Epochs are the epochs of which a workers' store has keys, the latest first.
func Epochs(c context.Context, st store.Store) ([]int, error) {
	keys, err := st.ListKeys(c)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, key := range keys {
		name, _, below := strings.Cut(key, "/")
		number, epoch := strings.CutPrefix(name, epochKeys)
		if n, err := strconv.Atoi(number); below && epoch && err == nil && n >= 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	slices.Reverse(out)
	return out, nil
}
