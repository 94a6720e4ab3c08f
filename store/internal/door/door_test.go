package door

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// plainDoor is the oracle: a list of who is there, in the order in which they came.
type plainDoor struct {
	most, room int
	inside     []plainVisitor
}

type plainVisitor struct {
	id      uint64
	name    string
	trusted bool
	proof   Proof
}

func (d *plainDoor) count(fits func(plainVisitor) bool) (n int) {
	for _, v := range d.inside {
		if fits(v) {
			n++
		}
	}
	return n
}

func (d *plainDoor) enter(id uint64, name string, trusted bool) (let bool, evicted uint64) {
	if len(d.inside) >= d.most {
		crowds := map[string]int{}
		for _, v := range d.inside {
			if v.proof == None {
				crowds[v.name]++
			}
		}
		all := d.count(func(v plainVisitor) bool { return v.proof == None })
		own := crowds[name] > 0 && crowds[name]*len(crowds) >= all
		i := slices.IndexFunc(d.inside, func(v plainVisitor) bool { return v.proof == None && (!own || v.name == name) })
		if i < 0 {
			return false, 0
		}
		evicted = d.inside[i].id
		d.inside = slices.Delete(d.inside, i, i+1)
	}
	d.inside = append(d.inside, plainVisitor{id, name, trusted, None})
	return true, evicted
}

func (d *plainDoor) prove(id uint64, p Proof) bool {
	i := slices.IndexFunc(d.inside, func(v plainVisitor) bool { return v.id == id })
	if i < 0 {
		return false
	}
	v := &d.inside[i]
	if v.proof == None && p == Guest {
		guests := d.count(func(v plainVisitor) bool { return v.proof == Guest })
		same := d.count(func(w plainVisitor) bool { return w.proof == Guest && w.name == v.name })
		if guests >= d.room || !v.trusted && same >= max(1, d.room/2) {
			return false
		}
	}
	if v.proof == None {
		v.proof = p
	}
	return true
}

func TestADoorDoesWhatAListOfWhoIsThereDoes(t *testing.T) {
	for seed := range uint64(soak.Cases(200)) {
		rnd := rand.New(rand.NewPCG(seed, 18))
		places := 1 + rnd.IntN(9)
		kept := rnd.IntN(places + 1)
		d, want := New(places, kept), &plainDoor{most: places, room: max(1, places-kept)}
		var all []*Visitor
		for id := range uint64(80) {
			name := fmt.Sprint("account ", rnd.IntN(4))
			v, evicted := d.Enter(id, name, name == "account 0")
			let, left := want.enter(id, name, name == "account 0")
			require.Equal(t, let, v != nil, "seed %d", seed)
			require.Equal(t, left, idOf(evicted), "seed %d", seed)
			if v != nil {
				all = append(all, v)
			}
			if len(all) > 0 {
				v = all[rnd.IntN(len(all))]
				proof := Proof(rnd.IntN(3))
				require.Equal(t, want.prove(v.ID, proof), d.Prove(v, proof), "seed %d", seed)
				v = all[rnd.IntN(len(all))]
				spoken := want.count(func(w plainVisitor) bool { return w.proof == Guest && v.account != nil && w.name == v.account.name }) > 0
				require.Equal(t, spoken, d.Spoken(v), "seed %d", seed)
				if rnd.IntN(3) == 0 {
					d.Leave(v)
					want.inside = slices.DeleteFunc(want.inside, func(w plainVisitor) bool { return w.id == v.ID })
				}
			}
			require.Equal(t, len(want.inside), d.Len(), "seed %d", seed)
		}
		for _, v := range all {
			d.Leave(v)
		}
		require.Zero(t, d.Len())
		require.Zero(t, d.crowds)
		require.Nil(t, d.Evict())
		for name, a := range d.accounts {
			require.Fail(t, "an account that has nobody is kept", "%s %+v", name, a)
		}
	}
}

func idOf(v *Visitor) uint64 {
	if v == nil {
		return 0
	}
	return v.ID
}

func TestACrowdOfOneAccountTurnsAwayItsOwn(t *testing.T) {
	d := New(100, 25)
	honest, _ := d.Enter(0, "honest", false)
	for id := range uint64(10_000) {
		v, _ := d.Enter(1+id, "crowd", false)
		require.NotNil(t, v)
	}
	require.True(t, d.Prove(honest, Member), "it was the oldest, and is still there")
}

func TestPlacesAreKeptForMembers(t *testing.T) {
	d := New(100, 25)
	for id := range uint64(300) {
		v, _ := d.Enter(id, fmt.Sprint(id%5), false)
		require.NotNil(t, v)
		if d.Prove(v, Guest) != (d.proved[Guest] <= 75 && v.proof == Guest) {
			t.Fatal("75 guests at most")
		}
	}
	for range 25 {
		v, _ := d.Enter(1000, "member", false)
		require.True(t, d.Prove(v, Member))
	}
	v, _ := d.Enter(1001, "member", false)
	require.Nil(t, v, "who has proved something is not turned out")
}

func TestStrangersCauseSomeLinesAtOnceAndThenOneASecond(t *testing.T) {
	var l Lines
	now := time.Unix(1e9, 0)
	said := 0
	for range 1000 {
		if say, _ := l.Say(now, ""); say {
			said++
		}
	}
	require.Equal(t, burst, said)
	say, _ := l.Say(now.Add(pace-1), "")
	require.False(t, say)
	say, unsaid := l.Say(now.Add(pace), "")
	require.True(t, say)
	require.Equal(t, 1000-burst+1, unsaid)
	say, unsaid = l.Say(now.Add(time.Hour), "")
	require.True(t, say)
	require.Zero(t, unsaid)
}

func TestLinesThatSayTheSameAreWrittenOnceAMinute(t *testing.T) {
	var l Lines
	now := time.Now()
	for range 100 {
		for _, about := range []string{"a", "b"} {
			_, _ = l.Say(now, about)
		}
	}
	require.Equal(t, 198, l.unsaid)
	say, unsaid := l.Say(now.Add(again-1), "a")
	require.False(t, say)
	require.Zero(t, unsaid)
	say, unsaid = l.Say(now.Add(again), "a")
	require.True(t, say)
	require.Equal(t, 199, unsaid)
	for i := range 10 * mostOld { // nobody fills the memory
		_, _ = l.Say(now.Add(again+time.Duration(i)*pace), strconv.Itoa(i))
		require.LessOrEqual(t, len(l.said), mostOld)
	}
}
