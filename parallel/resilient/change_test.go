package resilient

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
)

// TestAnEpochTellsWhoIsLostAndWhoHasCome has one of three workers replaced between two epochs,
// whether the others have noticed before or not, and whether the new one has its name or another's.
func TestAnEpochTellsWhoIsLostAndWhoHasCome(t *testing.T) {
	for _, noticed := range []bool{false, true} {
		for _, moves := range []bool{false, true} {
			t.Run(fmt.Sprintf("noticed %v, another's name %v", noticed, moves), func(t *testing.T) {
				ws := rpctest.World(t, rpctest.Net(), 3)
				c, came := soon(t), make(chan struct{})
				told := make([][]Change, 4)
				all := class(t, append(ws, ws[1]), false, func(i int, cfg *Config) {
					cfg.Changed = func(ch Change) { told[i] = append(told[i], ch) }
				})
				for rank, err := range rpctest.Attempt(3, func(rank int) error {
					return errors.Join(all[rank].enter(c, 1, ws, nil), all[rank].next(c))
				}) {
					require.NoError(t, err, "rank %d", rank)
				}
				for rank, err := range rpctest.Attempt(3, func(rank int) error {
					p := all[rank]
					if rank == 1 && noticed {
						return p.detach()
					}
					for noticed && p.Size() == 3 {
						if err := p.repair(c); err != nil {
							return err
						}
						p.mail.idle(c, pause)
					}
					return nil
				}) {
					require.NoError(t, err, "rank %d", rank)
				}
				require.NoError(t, all[1].leave())
				require.Empty(t, slices.Concat(told...), "a job that begins is no change")
				if moves {
					all[2].w, all[3].w = ws[1], ws[2]
				}
				for i, err := range rpctest.Attempt(4, func(i int) error {
					p := all[i]
					if i == 1 {
						return nil
					}
					err := p.enter(c, 2, ws, nil)
					if i == 3 {
						close(came)
						return errors.Join(err, p.Close(c))
					}
					for ; err == nil; err = p.next(c) {
						select {
						case <-came:
							return p.Close(c)
						default:
						}
					}
					if errors.Is(err, ErrEnded) {
						return nil
					}
					return err
				}) {
					require.NoError(t, err, "pupil %d", i)
				}
				var names []string
				for _, w := range ws {
					names = append(names, w.Name())
				}
				for _, i := range []int{0, 2} {
					require.NotEmpty(t, told[i], "pupil %d", i)
					first := told[i][0]
					require.Equal(t, names, first.Members, "pupil %d", i)
					require.Equal(t, []string{names[1]}, first.Lost, "pupil %d", i)
					require.Equal(t, []string{all[3].w.Name()}, first.Came, "pupil %d", i)
					require.Equal(t, uint64(2), first.Step, "pupil %d", i)
					require.Positive(t, first.Stood, "pupil %d", i)
				}
				for _, ch := range told[3] { // of others that end
					require.Empty(t, ch.Came)
				}
			})
		}
	}
}
