package plan

// edge is from one member to another.
type edge struct{ from, to int }

// hosts is the algorithm Hosts. It does as direct, but for what several members of a host need.
func hosts(kind Kind, size, rank, root int, at []int) []Step {
	if len(at) == 0 {
		at = make([]int, size)
	}
	bring := func(r int) []Slot { return brings(kind, size, r, root) }
	get := func(r int) []Slot { return gets(kind, size, r, root) }
	switch kind {
	case AllReduce:
		return append([]Step{summing(size, rank)}, passedOn(rank, at, summed, get)...)
	case AllGather:
		return passedOn(rank, at, bring, get)
	}
	data, words := passedOn(rank, at, bring, get), toAndFrom(kind, size, rank, root)
	data[0].Send, data[0].Recv = onto(words[0].Send, data[0].Send), onto(words[0].Recv, data[0].Recv)
	return append(data, words[1]) // the words of toAndFrom: who calls what, and that all is well
}

// onto is words, which go to members that may get data too, with the data.
func onto(words, data []Move) []Move {
	all := make([]Move, 0, len(words))
	for _, w := range words {
		w.Slots = nil
		for _, d := range data {
			if d.Peer == w.Peer {
				w.Slots = d.Slots
			}
		}
		all = append(all, w)
	}
	return all
}

// passedOn gives every member what it needs of what the others have, in two steps. at is each
// member's host. In the first step a slot goes to all that need it on its own host, and to one
// member on each other host; in the second, that member passes it on. Slots of one owner go to
// different members of a host, so that all have as much to pass on.
func passedOn(rank int, at []int, has, needs func(rank int) []Slot) []Step {
	first, second := map[edge][]Slot{}, map[edge][]Slot{}
	wants := make([]map[Slot]bool, len(at))
	for r := range at {
		wants[r] = map[Slot]bool{}
		for _, s := range needs(r) {
			wants[r][s] = true
		}
	}
	for from := range at {
		for _, s := range has(from) {
			there := map[int][]int{} // by host: who needs the slot
			for d := 1; d < len(at); d++ {
				if to := (from + d) % len(at); wants[to][s] {
					there[at[to]] = append(there[at[to]], to)
				}
			}
			for host, all := range there {
				if host == at[from] {
					for _, to := range all {
						first[edge{from, to}] = append(first[edge{from, to}], s)
					}
					continue
				}
				k := s.Piece % len(all)
				first[edge{from, all[k]}] = append(first[edge{from, all[k]}], s)
				for _, to := range append(all[:k:k], all[k+1:]...) {
					second[edge{all[k], to}] = append(second[edge{all[k], to}], s)
				}
			}
		}
	}
	return []Step{along(first, rank, len(at)), along(second, rank, len(at))}
}

// along is a member's step in which slots go along edges.
func along(edges map[edge][]Slot, rank, size int) Step {
	var s Step
	for d := 1; d < size; d++ { // every member begins with another one
		to, from := (rank+d)%size, (rank+size-d)%size
		if out := edges[edge{rank, to}]; out != nil {
			s.Send = append(s.Send, Move{to, out})
		}
		if in := edges[edge{from, rank}]; in != nil {
			s.Recv = append(s.Recv, Move{from, in})
		}
	}
	return s
}
