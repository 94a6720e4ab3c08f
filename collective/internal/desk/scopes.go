package desk

import "container/list"

// Scopes is how many scopes are remembered in which nothing is under way. The one that was used
// longest ago is forgotten first. When it is used again its numbers begin anew, on all members
// alike where all have forgotten it. So scopes may come and go without end, and one that is used
// now and again goes on where fewer than so many others come between.
const Scopes = 1 << 16

// scope is what is known of the operations of a scope that were begun here.
type scope struct {
	name  string
	begun uint64          // the number of the next one
	ended uint64          // all below have ended
	more  map[uint64]bool // those beyond that have ended
	idle  *list.Element   // its place among those in which nothing is under way; nil: something is
}

// Next takes the key of the next operation of a scope, which Begin is to follow.
func (d *Desk[T]) Next(name string) Key {
	k := Key{Scope: name}
	if s := d.scopes[name]; s != nil {
		k.N = s.begun
	}
	d.noteBegun(k)
	return k
}

// Skip takes the key of something that is numbered as operations are, and is none.
func (d *Desk[T]) Skip(name string) Key {
	k := d.Next(name)
	d.noteEnded(k)
	return k
}

// over says that an operation was begun here and has ended, or the one that it is a part of.
func (d *Desk[T]) over(k Key) bool {
	s := d.scopes[k.Scope]
	return s != nil && (k.N < s.ended || s.more[k.N]) || k.Part > 0 && d.parts[k.Whole()][k.Part]
}

// noteBegun notes that an operation was begun.
func (d *Desk[T]) noteBegun(k Key) {
	if k.Part > 0 {
		return
	}
	s := d.scopes[k.Scope]
	if s == nil {
		s = &scope{name: k.Scope}
		d.scopes[k.Scope] = s
	}
	s.begun = max(s.begun, k.N+1)
	if s.idle != nil {
		d.idle.Remove(s.idle)
		s.idle = nil
	}
}

// noteEnded notes that an operation has ended.
func (d *Desk[T]) noteEnded(k Key) {
	s := d.scopes[k.Scope]
	if s == nil || d.over(k) {
		return
	}
	if k.N > s.ended {
		if s.more == nil {
			s.more = map[uint64]bool{}
		}
		s.more[k.N] = true
		return
	}
	for s.ended++; s.more[s.ended]; s.ended++ {
		delete(s.more, s.ended)
	}
	if s.ended < s.begun {
		return
	}
	s.idle = d.idle.PushBack(s)
	if d.idle.Len() > Scopes {
		oldest := d.idle.Remove(d.idle.Front()).(*scope) //nolint:errcheck,forcetypeassert // it holds scopes alone
		delete(d.scopes, oldest.name)
	}
}
