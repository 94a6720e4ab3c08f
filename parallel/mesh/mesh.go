package mesh

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/collective"
)

// ErrMesh is wrapped by what is wrong with a mesh, by itself or for its group.
var ErrMesh = errors.New("bad mesh")

// Mesh says how many places there are along each axis; 0 means 1. Neighbours along Tensor have
// neighbouring ranks, as they talk most, and stages of the pipeline are farthest apart.
type Mesh struct {
	Pipeline, Data, Tensor int
	// Shard is how many neighbours along Data have the parts of one copy of the parameters, for
	// hybrid sharding; it divides Data. 0 means all: there is one copy.
	Shard int
}

// Place is where a rank is, from 0 along each axis.
type Place struct{ Pipeline, Data, Tensor int }

func (m Mesh) whole() Mesh {
	m.Pipeline, m.Data, m.Tensor = max(m.Pipeline, 1), max(m.Data, 1), max(m.Tensor, 1)
	if m.Shard == 0 {
		m.Shard = m.Data
	}
	return m
}

// Size is how many ranks there are.
func (m Mesh) Size() int {
	m = m.whole()
	return m.Pipeline * m.Data * m.Tensor
}

// Place is where a rank is.
func (m Mesh) Place(rank int) Place {
	m = m.whole()
	return Place{Pipeline: rank / (m.Data * m.Tensor), Data: rank / m.Tensor % m.Data, Tensor: rank % m.Tensor}
}

// Rank is who has a place.
func (m Mesh) Rank(p Place) int {
	m = m.whole()
	return (p.Pipeline*m.Data+p.Data)*m.Tensor + p.Tensor
}

// wrongs says all that is wrong with the mesh for so many ranks.
func (m Mesh) wrongs(size int) error {
	var errs []error
	for _, axis := range []struct {
		name string
		n    int
	}{{"Pipeline", m.Pipeline}, {"Data", m.Data}, {"Tensor", m.Tensor}, {"Shard", m.Shard}} {
		if axis.n < 0 || axis.n > size {
			errs = append(errs, fmt.Errorf("%w: %s is %d; expected 1 to %d, the number of workers, or 0 for none", ErrMesh, axis.name, axis.n, size))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	w := m.whole()
	if w.Size() != size {
		errs = append(errs, fmt.Errorf("%w: Pipeline %d × Data %d × Tensor %d is %d; expected %d, the number of workers%s",
			ErrMesh, w.Pipeline, w.Data, w.Tensor, w.Size(), size, w.remedy(size)))
	}
	if w.Data%w.Shard != 0 {
		errs = append(errs, fmt.Errorf("%w: Shard is %d; expected a divisor of Data, which is %d", ErrMesh, w.Shard, w.Data))
	}
	return errors.Join(errs...)
}

// remedy says which Data would do, where one would.
func (m Mesh) remedy(size int) string {
	if rest := m.Pipeline * m.Tensor; size%rest == 0 {
		return fmt.Sprintf(", as with Data %d", size/rest)
	}
	return fmt.Sprintf(", which Pipeline × Tensor, %d, does not divide", m.Pipeline*m.Tensor)
}

// Groups are the lines of a mesh on which this rank is. Their ranks are the places on them.
type Groups struct {
	Place
	Pipeline *collective.Group // the same Data and Tensor, by stage
	Data     *collective.Group // the same stage and part, by rows
	Tensor   *collective.Group // the same stage and rows, by part
	Shard    *collective.Group // of Data, those that have the parts of one copy; Data itself where there is one
	Across   *collective.Group // of Data, those that have the same part of each copy; nil where there is one
}

// line is a group to be made: of those that have one color, in the order of keys.
type line struct {
	to         **collective.Group
	color, key int
}

// Open makes the groups. All members of the group call it with the same mesh.
func (m Mesh) Open(c context.Context, g *collective.Group) (*Groups, error) {
	if err := m.agree(c, g); err != nil {
		return nil, fmt.Errorf("mesh: Open: %w", err)
	}
	w, at := m.whole(), m.Place(g.Rank())
	gs := &Groups{Place: at}
	lines := []line{
		{&gs.Pipeline, at.Data*w.Tensor + at.Tensor, at.Pipeline},
		{&gs.Data, at.Pipeline*w.Tensor + at.Tensor, at.Data},
		{&gs.Tensor, at.Pipeline*w.Data + at.Data, at.Tensor},
	}
	if w.Shard < w.Data {
		copies, data := w.Data/w.Shard, at.Pipeline*w.Tensor+at.Tensor
		lines = append(lines, line{&gs.Shard, data*copies + at.Data/w.Shard, at.Data}, line{&gs.Across, data*w.Shard + at.Data%w.Shard, at.Data})
	}
	for _, l := range lines {
		sub, err := g.Split(c, l.color, l.key)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("mesh: Open: %w", err), gs.Close())
		}
		*l.to = sub
	}
	if gs.Across == nil {
		gs.Shard = gs.Data
	}
	return gs, nil
}

// agree fails on all ranks where one has another mesh, or one that cannot be.
func (m Mesh) agree(c context.Context, g *collective.Group) error {
	all, err := collective.Agree(c, g, m)
	if err != nil {
		return err
	}
	for rank, other := range all {
		if err := other.wrongs(g.Size()); err != nil {
			return fmt.Errorf("rank %d, %s: %w", rank, g.Members()[rank].Worker, err)
		}
		if other.whole() != all[0].whole() {
			return fmt.Errorf("%w: rank 0 has %+v, and rank %d, %s, %+v", ErrMesh, all[0], rank, g.Members()[rank].Worker, other)
		}
	}
	return nil
}

// Close closes the groups.
func (gs *Groups) Close() error {
	var errs []error
	for _, g := range []*collective.Group{gs.Pipeline, gs.Data, gs.Tensor} {
		if g != nil {
			errs = append(errs, g.Close())
		}
	}
	for _, g := range []*collective.Group{gs.Shard, gs.Across} {
		if g != nil && g != gs.Data {
			errs = append(errs, g.Close())
		}
	}
	return errors.Join(errs...)
}
