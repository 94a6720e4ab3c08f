package door

import "container/list"

// Proof is what is known of a visitor.
type Proof byte

// The proofs.
const (
	None   Proof = iota // it has done nothing that a stranger could not do by holding a connection open
	Guest               // it has asked for something that it may ask for
	Member              // it has shown that it is of the job
)

// Door has a number of places. Make one with New.
type Door struct {
	most     int // places
	room     int // of them, those that guests may have
	accounts map[string]*account
	silent   list.List // of *Visitor: those that have proved nothing, the oldest first
	crowds   int       // accounts that have such
	proved   [Member + 1]int
}

// account is what one user, or one network, holds.
type account struct {
	name   string
	silent list.List // as Door.silent
	guests int
	all    int // members too
}

// Visitor is one that has come and not left.
type Visitor struct {
	ID uint64 // the owner's

	account      *account
	trusted      bool
	proof        Proof
	inAll, inOwn *list.Element // while it has proved nothing
}

// New makes a door to so many places, of which some are kept for members.
func New(places, kept int) *Door {
	return &Door{most: max(places, 1), room: max(places-kept, 1), accounts: map[string]*account{}}
}

// Enter gives a newcomer a place. evicted, unless it is nil, has lost its own for that, as if it
// had left. Where all places have somebody who has proved something, both are nil: the newcomer
// must go. A trusted account may have as many guests as there is room for.
func (d *Door) Enter(id uint64, name string, trusted bool) (v, evicted *Visitor) {
	a := d.accounts[name]
	if a == nil {
		a = &account{name: name}
	}
	if d.Len() >= d.most {
		if evicted = d.oldest(a); evicted == nil {
			return nil, nil
		}
		d.Leave(evicted)
	}
	d.accounts[name] = a // which may have lost its only visitor
	v = &Visitor{ID: id, account: a, trusted: trusted}
	if a.all++; a.silent.Len() == 0 {
		d.crowds++
	}
	v.inAll, v.inOwn = d.silent.PushBack(v), a.silent.PushBack(v)
	return v, evicted
}

// Evict takes its place from the oldest that has proved nothing, if there is one.
func (d *Door) Evict() *Visitor {
	v := d.oldest(nil)
	if v != nil {
		d.Leave(v)
	}
	return v
}

// oldest is who has to make room for a newcomer of an account: one of its own, if it has as many as
// others or more, and else the oldest of all.
func (d *Door) oldest(a *account) *Visitor {
	first := d.silent.Front()
	if a != nil && a.silent.Len() > 0 && a.silent.Len()*d.crowds >= d.silent.Len() {
		first = a.silent.Front()
	}
	if first == nil {
		return nil
	}
	return first.Value.(*Visitor)
}

// Prove notes what a visitor has proved, the first time. It says no where there is no room for one
// more guest, or the guest's account has half of it: then the visitor stays as it was.
func (d *Door) Prove(v *Visitor, p Proof) bool {
	switch {
	case v.account == nil: // it has left, or was evicted
		return false
	case v.proof != None || p == None:
		return true
	case p == Guest && (d.proved[Guest] >= d.room || !v.trusted && v.account.guests >= max(d.room/2, 1)):
		return false
	case p == Guest:
		v.account.guests++
	}
	d.speaks(v)
	v.proof = p
	d.proved[p]++
	return true
}

// speaks takes a visitor from those that have proved nothing.
func (d *Door) speaks(v *Visitor) {
	d.silent.Remove(v.inAll)
	v.account.silent.Remove(v.inOwn)
	v.inAll, v.inOwn = nil, nil
	if v.account.silent.Len() == 0 {
		d.crowds--
	}
}

// Leave takes a visitor's place back, the first time.
func (d *Door) Leave(v *Visitor) {
	a := v.account
	switch {
	case a == nil:
		return
	case v.proof == None:
		d.speaks(v)
	default:
		d.proved[v.proof]--
	}
	if v.proof == Guest {
		a.guests--
	}
	if a.all--; a.all == 0 {
		delete(d.accounts, a.name)
	}
	v.account = nil
}

// Spoken says whether an account has somebody who is more than silent.
func (d *Door) Spoken(v *Visitor) bool { return v.account != nil && v.account.guests > 0 }

// Len is how many places are taken.
func (d *Door) Len() int { return d.silent.Len() + d.proved[Guest] + d.proved[Member] }
