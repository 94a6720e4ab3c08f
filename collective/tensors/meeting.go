package tensors

import (
	"context"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
)

// meeting is a group as passes see it.
type meeting struct{ g *collective.Group }

func (m meeting) Rank() int { return m.g.Rank() }
func (m meeting) Size() int { return m.g.Size() }

func (m meeting) Backward(c context.Context, what string) (ctx.Talk, error) {
	b, err := m.g.Backward(c, what)
	if err != nil {
		return nil, lost(err)
	}
	return talk{b}, nil
}

func (m meeting) Abandon(c context.Context, cause error) { m.g.AbandonBackward(c, cause) }

type talk struct{ b *collective.Compound }

func (t talk) Tell(c context.Context, fact []byte, last bool) error {
	return lost(t.b.Tell(c, fact, last))
}

func (t talk) Hear(c context.Context) (int, []byte, error) {
	rank, fact, err := t.b.Hear(c)
	return rank, fact, lost(err)
}

func (t talk) Turn(c context.Context, op int, what, line string) context.Context {
	return t.b.Turn(c, op, what, line)
}

func (t talk) End(cause error) error { return lost(t.b.End(cause)) }
