package program

import "slices"

// order puts every instruction where the memory that it needs is taken late and given back early.
// An instruction that gives back as much as it takes runs as soon as its turn comes; another waits
// until one of those needs it. So what is computed again for the sake of memory is computed just
// before it is read. What all who read a value make may be less than that value: then none of them
// waits any longer.
func order(u *Unit) {
	s := schedule{u: u, by: u.Makers(), left: u.Uses(), done: make([]bool, len(u.Insts)), readers: u.readers()}
	s.kept = make([]bool, len(u.Types))
	for _, vs := range [2][]Value{u.Given, u.Results} {
		for _, v := range vs {
			s.kept[v] = true
		}
	}
	for k := range u.Insts {
		from := len(s.out)
		if !alias(u.Insts[k]) && s.taken(k) <= 0 {
			s.emit(k)
		}
		s.together(u.Insts[k].In, k)
		for ; from < len(s.out); from++ {
			s.together(s.out[from].In, k)
		}
	}
	for k := range u.Insts {
		s.emit(k)
	}
	u.Insts = s.out
}

// schedule is the new order under way.
type schedule struct {
	u       *Unit
	by      []int   // by value: the instruction that makes it
	readers [][]int // by value: the instructions that read it, in order
	left    []int   // by value: how often it is still to be read
	kept    []bool  // by value: it lies outside the arena
	done    []bool
	out     []Inst
}

// taken is how many bytes more an instruction needs than end with it, as things stand; 0 where it
// needs none. A single number is none that is worth waiting for.
func (s *schedule) taken(k int) (bytes int) {
	i := s.u.Insts[k]
	for _, v := range i.Out {
		if t := s.u.Types[v]; !s.kept[v] && t.Shape.Elems() > 1 {
			bytes += t.Bytes()
		}
	}
	if bytes == 0 {
		return 0
	}
	for n, v := range i.In {
		if !s.kept[v] && s.left[v] == readsOf(i.In, v) && !readBefore(i.In, n) {
			bytes -= s.u.Types[v].Bytes()
		}
	}
	return bytes
}

// together lists all who still read one of some values, where they have had their turn, which is
// k's, and need no more than that value.
func (s *schedule) together(vs []Value, k int) {
	for _, v := range vs {
		if s.kept[v] || s.left[v] == 0 || !s.done[s.by[v]] || len(s.readers[v]) > maxReaders {
			continue
		}
		var all []int
		bytes := -s.u.Types[v].Bytes()
		for _, m := range s.readers[v] {
			if !s.done[m] {
				all, bytes = append(all, m), bytes+s.taken(m)
			}
		}
		if bytes <= 0 && all[len(all)-1] <= k {
			for _, m := range all {
				s.emit(m)
			}
		}
	}
}

// made is how many bytes an instruction makes.
func (s *schedule) made(k int) (bytes int) {
	for _, v := range s.u.Insts[k].Out {
		bytes += s.u.Types[v].Bytes()
	}
	return bytes
}

func readsOf(in []Value, v Value) (n int) {
	for _, x := range in {
		if x == v {
			n++
		}
	}
	return n
}

func readBefore(in []Value, n int) bool { return readsOf(in[:n], in[n]) > 0 }

// emit lists an instruction after those that it needs, each just in time. Depth lies on a stack of
// its own: units may be deep.
func (s *schedule) emit(k int) {
	stack := []int{k}
	for len(stack) > 0 {
		k := stack[len(stack)-1]
		if s.done[k] {
			stack = stack[:len(stack)-1]
			continue
		}
		from := len(stack)
		for n := len(s.u.Insts[k].In) - 1; n >= 0; n-- {
			if m := s.by[s.u.Insts[k].In[n]]; m >= 0 && !s.done[m] {
				stack = append(stack, m)
			}
		}
		if len(stack) > from { // the largest first: making it may take most on the way
			slices.SortStableFunc(stack[from:], func(a, b int) int { return s.made(a) - s.made(b) })
			continue
		}
		stack = stack[:len(stack)-1]
		s.done[k] = true
		s.out = append(s.out, s.u.Insts[k])
		for _, v := range s.u.Insts[k].In {
			s.left[v]--
		}
	}
}
