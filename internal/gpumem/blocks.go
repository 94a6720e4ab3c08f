package gpumem

import (
	"cmp"
	"slices"
)

// block is memory that was taken or imported, who used it, and what it holds.
type block struct {
	at  uintptr
	n   int
	use history
	origin
}

// blocks are all of a GPU's, by address.
type blocks struct {
	all   []*block
	other block // stands for what is in none
}

func (b *blocks) search(at uintptr) (k int, is bool) {
	return slices.BinarySearchFunc(b.all, at, func(x *block, at uintptr) int { return cmp.Compare(x.at, at) })
}

func (b *blocks) insert(at uintptr, n int) {
	k, is := b.search(at)
	if is { // it was given back behind our back
		b.all[k] = &block{at: at, n: n}
		return
	}
	b.all = slices.Insert(b.all, k, &block{at: at, n: n})
}

func (b *blocks) remove(at uintptr) {
	if k, is := b.search(at); is {
		b.all = slices.Delete(b.all, k, k+1)
	}
}

// of is the block in which an address lies.
func (b *blocks) of(at uintptr) *block {
	k, is := b.search(at)
	if !is {
		k--
	}
	if k >= 0 && at-b.all[k].at < uintptr(b.all[k].n) {
		return b.all[k]
	}
	return &b.other
}

// origins are those of all values.
func (b *blocks) origins(see func(*origin)) {
	for _, x := range b.all {
		see(&x.origin)
	}
}
