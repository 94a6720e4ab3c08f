package ptx

import (
	"slices"
	"sync"
)

// Hold keeps streams that have something to do from doing it, but for as many tasks as first says,
// until release is called. Who waits for one of them meanwhile waits for that. It needs
// [Config.Late], as else nothing is ever queued. It shows what goes on beside work that takes long.
func (m *Machine) Hold(first int) (release func()) {
	m.host.mu.Lock()
	defer m.host.mu.Unlock()
	if m.host.freed == nil {
		m.host.freed = sync.NewCond(&m.host.mu)
	}
	var held []*stream
	for _, s := range m.streams {
		if !s.held && slices.ContainsFunc(s.queue, func(t task) bool { return t.do != nil }) {
			s.held, s.may = true, first
			held = append(held, s)
		}
	}
	return func() {
		m.host.mu.Lock()
		defer m.host.mu.Unlock()
		for _, s := range held {
			s.held = false
		}
		m.host.freed.Broadcast()
	}
}

// holds says whether a stream of the machine is held.
func (m *Machine) holds() bool {
	for _, s := range m.streams {
		if s.held {
			return true
		}
	}
	return false
}
