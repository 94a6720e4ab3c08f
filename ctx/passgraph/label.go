package passgraph

import (
	"fmt"
	"strings"
	"time"

	"github.com/weft-project/weft/internal/printable"
)

// shown makes a text one line of at most maxText bytes that XML and terminals can hold.
func shown(s string) string { return printable.Text(s, maxText) }

// columns is how many places of a fixed-width font a text takes.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += wide(r)
	}
	return n
}

// wide takes everything from the first of the East Asian blocks on for two places, which is never
// too few.
func wide(r rune) int {
	if r >= 0x1100 && (r < 0x2000 || r >= 0x2600) {
		return 2
	}
	return 1
}

// cut shortens a text to so many columns.
func cut(s string, most int) string {
	if columns(s) <= most {
		return s
	}
	n := 0
	for i, r := range s {
		if n += wide(r); n > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// idText prints a pass's or a message's id as package ctx does: creator and counter.
func idText(id uint64) string { return fmt.Sprintf("%d.%d", id>>48, id&(1<<32-1)) }

func (t Type) String() string {
	name := strings.Replace(strings.Replace(t.Dtype.String(), "float", "f", 1), "int", "i", 1)
	if len(t.Shape) == 0 {
		return name
	}
	dims := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = fmt.Sprint(d)
	}
	return name + "[" + strings.Join(dims, "×") + "]"
}

// typesText prints the first type, and how many there are more.
func typesText(ts []Type) string {
	switch len(ts) {
	case 0:
		return ""
	case 1:
		return ts[0].String()
	}
	for _, t := range ts[1:] {
		if t.String() != ts[0].String() {
			return fmt.Sprintf("%v +%d", ts[0], len(ts)-1)
		}
	}
	return fmt.Sprintf("%d× %v", len(ts), ts[0])
}

// bytesText prints a size with three digits at most.
func bytesText(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f := float64(n)
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if f /= 1024; f < 1000 || unit == "PiB" {
			return digits(f) + " " + unit
		}
	}
	return ""
}

// timeText prints a duration with three digits at most.
func timeText(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < 999500*time.Nanosecond:
		return digits(float64(d)/float64(time.Microsecond)) + " µs"
	case d < 999500*time.Microsecond:
		return digits(float64(d)/float64(time.Millisecond)) + " ms"
	}
	return digits(d.Seconds()) + " s"
}

func digits(f float64) string {
	switch {
	case f < 9.995:
		return strings.TrimSuffix(fmt.Sprintf("%.2f", f), ".00")
	case f < 99.95:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
	}
	return fmt.Sprintf("%.0f", f)
}

// dot stands between what is said of one thing.
const dot = " · "

// timesText prints the times that are known.
func timesText(forward, backward time.Duration) string {
	var parts []string
	if forward > 0 {
		parts = append(parts, "fwd "+timeText(forward))
	}
	if backward > 0 {
		parts = append(parts, "bwd "+timeText(backward))
	}
	return strings.Join(parts, dot)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
