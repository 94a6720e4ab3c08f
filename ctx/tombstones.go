package ctx

// tombstones remember the passes that were left lately, so that a straggler does not bring one back
// to life.
type tombstones struct {
	set  map[PassID]error // why it is gone, nil where it was just left
	ring []PassID
	next int
}

const maxTombstones = 4096

func (t *tombstones) has(id PassID) bool { _, ok := t.set[id]; return ok }

func (t *tombstones) add(id PassID, why error) {
	if t.has(id) {
		return
	}
	if t.set == nil {
		t.set = map[PassID]error{}
	}
	if len(t.ring) < maxTombstones {
		t.ring = append(t.ring, id)
	} else {
		delete(t.set, t.ring[t.next])
		t.ring[t.next] = id
		t.next = (t.next + 1) % maxTombstones
	}
	t.set[id] = why
}
