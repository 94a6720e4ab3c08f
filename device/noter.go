package device

// Noter is a [Memory] that keeps notes on what uses its blocks.
type Noter interface {
	Memory
	// Note is the note on what Take gave, which stays the same until Give.
	Note(at uintptr) any
	// Fits says whether a block that has a note can be used at once by the work that a hint is
	// about, which only the Memory knows.
	Fits(note, hint any) bool
	// Fresh tells that nobody will ask for what a block holds: it was given out anew, or all of it
	// is about to be replaced.
	Fresh(note any)
	// Like tells that what a block holds came of what another holds, and of nothing else, whatever
	// the run that wrote it read.
	Like(note, of any)
	// Known is what is known to be wrong with what a block holds, for who is about to step it, or
	// by it. It waits for nothing.
	Known(note any) error
}

// ForUpload is a hint: bytes that are about to be uploaded, and by nobody used until then.
type ForUpload struct{}

// Note is what the accelerator's memory has noted on the buffer's block, where it is a [Noter].
func (b *Buffer) Note() any {
	if b.blk == nil {
		return nil
	}
	return b.blk.note
}

// Hinter is work that can be asked, before it is, for a hint to [Accelerator.AllocFor] and
// [Accelerator.BorrowFor].
type Hinter interface {
	// Hint is about a run over buffers, of which those are nil that are to be allocated.
	Hint(bufs []*Buffer) any
}
