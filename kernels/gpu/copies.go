package gpu

// copies are the operands that a sequence's launches read in bfloat16. A copy serves until what it
// is of is written.
type copies struct {
	all   []copied
	fresh []int // those that are as what they are of
}

// copied is a copy of n bytes of a buffer, in half as many, which launches from first to last write
// and read.
type copied struct {
	of          spot
	first, last int
	at          int // bytes into the scratch
}

// of finds the copy of memory that a launch is about to make, or else notes it.
func (c *copies) of(from spot, launch int) (id int, known bool) {
	for _, id := range c.fresh {
		if c.all[id].of == from {
			return id, true
		}
	}
	id = len(c.all)
	c.all = append(c.all, copied{of: from, first: launch, last: launch})
	c.fresh = append(c.fresh, id)
	return id, false
}

// wrote forgets copies of what has been written.
func (c *copies) wrote(s spot) {
	kept := c.fresh[:0]
	for _, id := range c.fresh {
		if of := c.all[id].of; of.buf != s.buf || of.off >= s.off+s.n || s.off >= of.off+of.n {
			kept = append(kept, id)
		}
	}
	c.fresh = kept
}

// arrange chooses where copies lie from some byte on: where no other lies that is needed at the
// same time. It says where they end.
func (c *copies) arrange(from int) (end int) {
	end = from
	for k := range c.all {
		x := &c.all[k]
		x.at = from
		for moved := true; moved; {
			moved = false
			for _, y := range c.all[:k] {
				if y.last >= x.first && x.at < y.after() && y.at < x.after() {
					x.at, moved = y.after(), true
				}
			}
		}
		end = max(end, x.after())
	}
	return end
}

// after is where the next can begin.
func (c *copied) after() int { return c.at + (c.of.n/2+255)&^255 }

// place gives the copies their place in the scratch.
func (s *builder) place() {
	if len(s.copies.all) == 0 {
		return
	}
	s.scratch = s.copies.arrange(s.scratch)
	for k, p := range s.patches {
		if p.buf <= -2 {
			s.patches[k] = patch{p.off, -1, p.add + uintptr(s.copies.all[-2-p.buf].at)}
		}
	}
}
