package trace

// layout puts the spans of one process on threads such that the spans of a thread are apart, or lie
// in their parent. Spans come in the order of their ends, more or less.
type layout struct {
	threads []thread
}

// thread holds the spans that lie on it and in no other span, by time.
type thread struct {
	top []interval
}

type interval struct {
	id, parent ID
	start, end int64
}

// maxTop bounds what a thread remembers; older spans are taken for one, in which nothing fits.
const maxTop = 256

// assign gives the thread for a span, from 1, and whether it is a new one. It prefers the one on
// which the span's children lie, and then the one that was busy last.
func (l *layout) assign(s interval) (tid int, fresh bool) {
	best, most := -1, -1
	var last int64
	for i := range l.threads {
		n, end, ok := l.threads[i].fits(s)
		if ok && (n > most || n == most && end > last) {
			best, most, last = i, n, end
		}
	}
	if fresh = best < 0; fresh {
		l.threads = append(l.threads, thread{})
		best, most = len(l.threads)-1, 0
	}
	l.threads[best].insert(s, most)
	return best + 1, fresh
}

// fits says whether a span can lie on the thread, how many children it would take in, and when the
// thread was busy before it.
func (t *thread) fits(s interval) (children int, end int64, ok bool) {
	i := len(t.top)
	for i > 0 && t.top[i-1].end > s.start {
		c := t.top[i-1]
		if c.parent != s.id || c.start < s.start || c.end > s.end {
			return 0, 0, false
		}
		i--
	}
	if i > 0 {
		end = t.top[i-1].end
	}
	return len(t.top) - i, end, true
}

// insert puts a span that fits in its place, around its children.
func (t *thread) insert(s interval, children int) {
	t.top = append(t.top[:len(t.top)-children], s)
	if len(t.top) > maxTop {
		half := maxTop / 2
		t.top[half] = interval{start: t.top[0].start, end: t.top[half].end}
		t.top = append(t.top[:0], t.top[half:]...)
	}
}
