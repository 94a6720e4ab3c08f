package cudaipc

import "slices"

// arenaUnit is what places in an outbox are multiples of.
const arenaUnit = 256

// arena gives out places of so many bytes, the first that fits, and takes them back in any order.
// Places and lengths are multiples of arenaUnit.
type arena struct {
	free []gap // by place; neighbours are one
}

type gap struct{ at, n int }

func newArena(n int) arena { return arena{[]gap{{0, n / arenaUnit * arenaUnit}}} }

func rounded(n int) int { return (n + arenaUnit - 1) / arenaUnit * arenaUnit }

func (a *arena) take(n int) (at int, ok bool) {
	n = rounded(n)
	for i, e := range a.free {
		switch {
		case e.n < n:
			continue
		case e.n == n:
			a.free = slices.Delete(a.free, i, i+1)
		default:
			a.free[i] = gap{e.at + n, e.n - n}
		}
		return e.at, true
	}
	return 0, false
}

func (a *arena) give(at, n int) {
	n = rounded(n)
	i, _ := slices.BinarySearchFunc(a.free, at, func(e gap, at int) int { return e.at - at })
	a.free = slices.Insert(a.free, i, gap{at, n})
	if i+1 < len(a.free) && at+n == a.free[i+1].at {
		a.free[i].n += a.free[i+1].n
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].at+a.free[i-1].n == at {
		a.free[i-1].n += a.free[i].n
		a.free = slices.Delete(a.free, i, i+1)
	}
}
