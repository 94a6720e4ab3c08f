package lane

const refusedCount = 4096 // tickets that were refused and may still come

// NewRefusedTickets makes an empty memory of them.
func NewRefusedTickets() RefusedTickets { return RefusedTickets{has: map[uint64]bool{}} }

// RefusedTickets remembers the last tickets that were refused before their stream had come.
type RefusedTickets struct {
	has  map[uint64]bool
	ring []uint64
	next int
}

// Add remembers a ticket, in the place of the oldest where there are too many.
func (r *RefusedTickets) Add(id uint64) {
	if r.has[id] {
		return
	}
	r.has[id] = true
	if len(r.ring) < refusedCount {
		r.ring = append(r.ring, id)
		return
	}
	delete(r.has, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % refusedCount
}

// Cut says whether a ticket was refused, and forgets it.
func (r *RefusedTickets) Cut(id uint64) bool {
	was := r.has[id]
	delete(r.has, id)
	return was
}
