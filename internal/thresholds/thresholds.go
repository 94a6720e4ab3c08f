package thresholds

// Unit is what a threshold counts.
type Unit uint8

// The units.
const (
	Elems  Unit = iota // elements of a value
	Bytes              // of a value, or of a tensor in a message
	Extent             // of one axis, or terms of a sum
	Work               // multiplications of a product
)

// Suite is the random tests that draw around a threshold.
type Suite uint16

// The suites. A threshold may be in several.
const (
	Programs Suite = 1 << iota // compiled functions against eager ones and the oracle
	Passes                     // what a compiler's pass gives against what it was given
	Kernels                    // instructions against their definitions, on a CPU
	GPU                        // those on a GPU, which may be the interpreter's
	Messages                   // tensors in messages, between processes or simulated hosts
	Calls                      // between workers, with their gradients
	Lowered                    // what no test can reach on an interpreter: tests set it lower, and draw around that
	Groups                     // arrays of groups' operations
	Sums                       // those that all members sum, of some MiB
	Pieces                     // of losses: tests set them lower, too
	Windows                    // what members see of one another's GPUs: tests set them lower, too
)

// Threshold is a constant of the code: beyond it, or from it on, the code takes another way.
type Threshold struct {
	Name  string // folder and constant
	Value int
	Unit  Unit
	By    Suite
}

// Elems is how many elements of so many bytes make a value on one side of the threshold: below for
// −1, at it for 0, above for 1.
func (t Threshold) Elems(size, side int) int {
	if t.Unit == Bytes {
		return max(t.Value/size, 1) + side
	}
	return t.Value + side
}

// Drawer goes around the thresholds of a suite: below, at and above the first, then the second, and
// so on, again and again.
type Drawer struct {
	all  []Threshold
	next int
}

// Around draws around the thresholds of a suite that count in some of the units; in any, where none
// is named.
func Around(s Suite, units ...Unit) *Drawer { return around(All(), s, units) }

func around(all []Threshold, s Suite, units []Unit) *Drawer {
	d := &Drawer{}
	for _, t := range all {
		named := len(units) == 0
		for _, u := range units {
			named = named || t.Unit == u
		}
		if t.By&s != 0 && named {
			d.all = append(d.all, t)
		}
	}
	return d
}

// Next is a threshold, and on which side of it the next size is to be.
func (d *Drawer) Next() (t Threshold, side int) {
	t, side = d.all[d.next/3%len(d.all)], d.next%3-1
	d.next++
	return t, side
}

// Missing names the thresholds around which nothing was drawn yet, on some side.
func (d *Drawer) Missing() (names []string) {
	for _, t := range d.all[min(d.next/3, len(d.all)):] {
		names = append(names, t.Name)
	}
	return names
}

// Len is how many sizes go once around all thresholds.
func (d *Drawer) Len() int { return 3 * len(d.all) }
