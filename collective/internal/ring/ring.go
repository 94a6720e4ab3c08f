package ring

// Ring keeps the last values that were added to it. Its zero value keeps none.
type Ring[T any] struct {
	kept []T
	most int
	next uint64 // how many were added
}

// New makes a ring for so many values. It grows up to that as values come.
func New[T any](most int) Ring[T] { return Ring[T]{most: most} }

// Add keeps a value, and forgets the oldest where there is no more room.
func (r *Ring[T]) Add(v T) {
	switch {
	case len(r.kept) < r.most:
		r.kept = append(r.kept, v)
	case r.most > 0:
		r.kept[r.next%uint64(r.most)] = v
	}
	r.next++
}

// All gives what is kept, the oldest first.
func (r *Ring[T]) All() []T {
	if len(r.kept) == 0 {
		return nil
	}
	first := 0
	if len(r.kept) == r.most {
		first = int(r.next % uint64(r.most))
	}
	return append(append(make([]T, 0, len(r.kept)), r.kept[first:]...), r.kept[:first]...)
}

// Added is how many values were ever added.
func (r *Ring[T]) Added() uint64 { return r.next }
