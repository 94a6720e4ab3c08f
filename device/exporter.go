package device

// Checker is a [Memory] that can be asked what went wrong.
type Checker interface {
	// Check begins to wait for the work that has written at some addresses, or, without any, for
	// all work that was asked for before; wait, which is called once, tells what went wrong with
	// it, as Download does. It is for who lets bytes go without a Download: nobody would hear of it
	// later.
	Check(of ...uintptr) (wait func() error, err error)
}

// Neighbor is a [Memory] that may reach another one of the process without the host.
type Neighbor interface {
	Memory
	// CopyTo copies n bytes to another memory, after all work of both that was asked for before,
	// and returns when it is done. It tells what went wrong with that work, as Download does. Where
	// it cannot reach the other, ok is false, and nothing was done.
	CopyTo(to Memory, dst, src uintptr, n int) (ok bool, err error)
}

// Exporter is a [Memory] that other processes of the host can open, as far as its accelerator can.
type Exporter interface {
	Memory
	Checker
	// Identity names the accelerator, the same in all processes of the host that use it; empty
	// where its memory cannot be shared.
	Identity() string
	// Export gives a handle of at most 256 bytes for what Take gave, which lives as long as that.
	Export(at uintptr) (handle []byte, err error)
	// Import opens memory of another process by its handle, which may hold anything, and says how
	// many bytes there are. They are this process's to read, until Unimport. Memory of its own is
	// refused.
	Import(handle []byte) (at uintptr, n int, err error)
	Unimport(at uintptr) error
	// Pass is Move between memory of its own and memory that other processes see, which waits until
	// what it copies is there, and where it goes is free, and stands behind no other work.
	Pass(dst, src uintptr, n int) error
	// Mark begins to wait for the work that was asked for before and uses memory at some addresses,
	// or, without any, for all; wait, which is called once, tells when it is done, and not what
	// went wrong.
	Mark(of ...uintptr) (wait func() error, err error)
}

// MostFolded is how many arrays a [Folder] takes at most.
const MostFolded = 16

// Folder is an [Exporter] whose accelerator makes one array of several, for groups whose members
// have memory of one another open.
type Folder interface {
	Exporter
	// Fold writes n elements that a function makes of those of several arrays, element by element,
	// in their order. It comes after what was asked for before and uses the same memory. fn is a
	// number as package collective has them; to may be one of the arrays.
	Fold(fn uint8, factor float64, d Dtype, n int, to uintptr, from ...uintptr) error
}

// Exporter gives the device's memory where that can be shared.
func (d *Accelerator) Exporter() (Exporter, bool) {
	e, ok := d.raw.(Exporter)
	return e, ok && e.Identity() != ""
}
