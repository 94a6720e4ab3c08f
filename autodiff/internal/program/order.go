package program

import "slices"

// order puts every instruction where the memory that it needs is taken late and given back early.
// An instruction that gives back as much as it takes runs as soon as its turn comes; another waits
// until one of those needs it. So what is computed again for the sake of memory is computed just
// before it is read.
func order(u *Unit) {
	s := schedule{u: u, by: u.Makers(), left: u.Uses(), done: make([]bool, len(u.Insts))}
	s.kept = make([]bool, len(u.Types))
	for _, vs := range [2][]Value{u.Given, u.Results} {
		for _, v := range vs {
			s.kept[v] = true
		}
	}
	for k := range u.Insts {
		if !s.takes(k) {
			s.emit(k)
		}
	}
	for k := range u.Insts {
		s.emit(k)
	}
	u.Insts = s.out
}

// schedule is the new order under way.
type schedule struct {
	u    *Unit
	by   []int  // by value: the instruction that makes it
	left []int  // by value: how often it is still to be read
	kept []bool // by value: it lies outside the arena
	done []bool
	out  []Inst
}

// takes says whether an instruction needs more memory than ends with it, as things stand.
func (s *schedule) takes(k int) bool {
	i := s.u.Insts[k]
	if alias(i) {
		return true
	}
	bytes := 0
	for _, v := range i.Out {
		if !s.kept[v] {
			bytes += s.u.Types[v].Bytes()
		}
	}
	if bytes == 0 {
		return false
	}
	for n, v := range i.In {
		if !s.kept[v] && s.left[v] == readsOf(i.In, v) && !readBefore(i.In, n) {
			bytes -= s.u.Types[v].Bytes()
		}
	}
	return bytes > 0
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
