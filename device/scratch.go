package device

// Scratch is memory that an accelerator's own work needs for a while. It is no buffer, and not
// counted as live.
type Scratch struct{ blk *block }

// Borrow gives n > 0 bytes, aligned to 256, from where buffers come from. The borrower gives them
// back, once, when the work that uses them has been asked for.
func (d *Accelerator) Borrow(n int) (Scratch, error) { return d.BorrowFor(n, nil) }

// BorrowFor is Borrow of bytes that are at once ready for what a hint is about, where there is
// memory enough: see [Noter].
func (d *Accelerator) BorrowFor(n int, hint any) (Scratch, error) {
	if n < 0 || n > maxAccelerator {
		return Scratch{}, &Error{d.id, "alloc", ErrBounds}
	}
	blk, err := d.block(n, hint, false)
	return Scratch{blk}, err
}

// Note is Buffer's Note, of the scratch's block.
func (s Scratch) Note() any { return s.blk.note }

// Addr is where the scratch lies.
func (s Scratch) Addr() uintptr { return s.blk.addr }

// Return gives the scratch back.
func (s Scratch) Return() { s.blk.dev.put(s.blk) }
