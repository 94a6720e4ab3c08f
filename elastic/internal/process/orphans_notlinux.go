//go:build !linux

package process

// Orphans are nobody's here: only Linux gives them to another process than the first.
type Orphans struct{}

// NewOrphans does nothing here, nor do its methods.
func NewOrphans(bool) *Orphans { return &Orphans{} }

// Start starts a worker.
func (*Orphans) Start(begin func() (*Process, error)) (*Process, error) { return begin() }

// Reaped does nothing.
func (*Orphans) Reaped(int) {}

// Kill does nothing.
func (*Orphans) Kill() {}

// ReapEnded does nothing.
func (*Orphans) ReapEnded() {}
