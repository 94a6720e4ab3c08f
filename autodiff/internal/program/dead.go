package program

// dead removes the instructions whose results nobody reads.
func dead(u *Unit) {
	live := make([]bool, len(u.Types))
	for _, v := range u.Results {
		live[v] = true
	}
	at := len(u.Insts)
	kept := make([]Inst, at)
	for k := len(u.Insts) - 1; k >= 0; k-- {
		i := u.Insts[k]
		read := false
		for _, v := range i.Out {
			read = read || live[v]
		}
		if !read {
			continue
		}
		for _, v := range i.In {
			live[v] = true
		}
		at--
		kept[at] = i
	}
	u.Insts = kept[at:]
}
