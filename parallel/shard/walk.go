package shard

// walk is one way over the layers, of a forward or a backward: which are still to be gathered, in
// the order in which all ranks gather them. It is pure.
//
// Who waits for a layer has begun to gather all that come before it. So of the layers that some
// rank has not begun, nobody waits for one behind the first, and no two ranks wait for each other.
type walk struct {
	what string // describes it, on all ranks alike
	todo []int
}

// forth goes in ascending order over the layers that are not there, and back in descending order.
func forth(what string, there []bool) walk {
	w := walk{what: what}
	for k, is := range there {
		if !is {
			w.todo = append(w.todo, k)
		}
	}
	return w
}

func back(what string, there []bool) walk {
	w := walk{what: what}
	for k := len(there) - 1; k >= 0; k-- {
		if !there[k] {
			w.todo = append(w.todo, k)
		}
	}
	return w
}

// upTo takes out the layers that come up to k; none if k is not to be gathered.
func (w *walk) upTo(k int) (begin []int) {
	for i, j := range w.todo {
		if j == k {
			begin, w.todo = w.todo[:i+1], w.todo[i+1:]
			return begin
		}
	}
	return nil
}

// nextLayer takes out the layer to come, if there is one.
func (w *walk) nextLayer() (k int, ok bool) {
	if len(w.todo) == 0 {
		return 0, false
	}
	k, w.todo = w.todo[0], w.todo[1:]
	return k, true
}
