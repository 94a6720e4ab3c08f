package names

import (
	"fmt"
	"slices"
	"strings"
)

// most bounds how many names an error lists.
const most = 8

// List is names in order, a few of them where there are many.
func List(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
