package resilient

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/internal/host"
)

// taught is a member whose optimizer has made a step.
func taught(t testing.TB, seed uint64, sizes ...int) *Team {
	t.Helper()
	model := nn.NewMLP(rand.New(rand.NewPCG(seed, 1)), autodiff.GELU, sizes...)
	opt, err := optim.NewGroups(optim.Named(optim.AdamW{LR: 0.1}, nn.Parameters(model)))
	require.NoError(t, err)
	team, err := newTeam(Config{Params: nn.Parameters(model), Optimizer: opt})
	require.NoError(t, err)
	grads := map[*autodiff.Tensor]*autodiff.Tensor{}
	for _, p := range team.params {
		grads[p] = nn.Ones(device.Float32, p.Shape()...)
	}
	require.NoError(t, opt.Step(grads))
	return team
}

// pieces are what a newcomer gets of a snapshot.
func pieces(t testing.TB, k *snapshot) (manifest, []*device.Buffer) {
	t.Helper()
	m, err := k.manifest()
	require.NoError(t, err)
	data := make([]*device.Buffer, len(m.Entries))
	for i, e := range m.Entries {
		to, mem, err := host.Zeros(e.Bytes)
		require.NoError(t, err)
		data[i] = to
		for n := range e.pieces() {
			b, err := k.part(i, n)
			require.NoError(t, err)
			from, err := b.Host()
			require.NoError(t, err)
			copy(mem[n*piece:], from)
			require.NoError(t, b.Release())
		}
	}
	return m, data
}

func TestAStateThatHasTravelledInPiecesIsTheSameAndOlderThanStepsMadeMeanwhile(t *testing.T) {
	for _, hidden := range []int{3, 600, 9000} { // below a piece, and several of a tensor
		from, to := taught(t, 1, 30, hidden, 2), taught(t, 2, 30, hidden, 2)
		k, err := from.state()
		require.NoError(t, err)
		before, err := from.digest()
		require.NoError(t, err)
		other, err := to.digest()
		require.NoError(t, err)
		require.NotEqual(t, before, other)
		require.NoError(t, from.cfg.Optimizer.Step(map[*autodiff.Tensor]*autodiff.Tensor{from.params[0]: nn.Ones(device.Float32, from.params[0].Shape()...)}))
		m, data := pieces(t, k)
		require.Equal(t, before, m.Digest)
		like, err := to.fits(m)
		require.NoError(t, err)
		require.NoError(t, to.takeOver(m, like, data))
		got, err := to.digest()
		require.NoError(t, err)
		require.Equal(t, before, got)
		after, err := from.digest()
		require.NoError(t, err)
		require.NotEqual(t, before, after)
	}
}

// lies says where in memory each tensor of the state is.
func lies(t *testing.T, team *Team) (all []*byte) {
	t.Helper()
	k, err := team.state()
	require.NoError(t, err)
	defer k.dropValues()
	for _, x := range k.tensors {
		b, err := x.Acquire()
		require.NoError(t, err)
		mem, err := b.Host()
		require.NoError(t, err)
		all = append(all, &mem[0])
		require.NoError(t, b.Release())
	}
	return all
}

func TestAStepOverwritesValuesThatWereLookedAtOrHaveCome(t *testing.T) {
	from, to := taught(t, 1, 30, 9, 2), taught(t, 2, 30, 9, 2)
	k, err := from.state()
	require.NoError(t, err)
	m, data := pieces(t, k)
	like, err := to.fits(m)
	require.NoError(t, err)
	require.NoError(t, to.takeOver(m, like, data))
	from.keeps.states[3] = k
	from.keeps.only(nil)
	for _, team := range []*Team{from, to} {
		_, err := team.digest()
		require.NoError(t, err)
		before := lies(t, team)
		grads := map[*autodiff.Tensor]*autodiff.Tensor{}
		for _, p := range team.params {
			grads[p] = nn.Ones(device.Float32, p.Shape()...)
		}
		require.NoError(t, team.cfg.Optimizer.Step(grads))
		require.Equal(t, before, lies(t, team))
	}
}

func TestAStepOverwritesValuesOfWhichAKeptStateHasCopies(t *testing.T) {
	for _, hidden := range []int{3, 9000} { // below a piece, and several of a tensor
		team := taught(t, 1, 30, hidden, 2)
		grads := map[*autodiff.Tensor]*autodiff.Tensor{}
		for _, p := range team.params {
			grads[p] = nn.Ones(device.Float32, p.Shape()...)
		}
		digest, err := team.digest()
		require.NoError(t, err)
		team.keeps.snap(0, team.state)
		k, before := team.keeps.of(0), lies(t, team)
		<-k.parting.done
		team.keeps.makesStep()
		require.NoError(t, team.cfg.Optimizer.Step(grads))
		require.Equal(t, before, lies(t, team))
		m, err := k.manifest()
		require.NoError(t, err)
		require.Equal(t, digest, m.Digest)

		team.keeps.snap(1, team.state)
		team.keeps.makesStep() // before all is copied, perhaps
		digest, err = team.digest()
		require.NoError(t, err)
		require.NoError(t, team.cfg.Optimizer.Step(grads))
		m, err = team.keeps.of(1).manifest()
		require.NoError(t, err)
		require.Equal(t, digest, m.Digest)
		team.keeps.snap(2, team.state)
		team.keeps.only(nil)
	}
}

// BenchmarkLendingAState is what a member does for a newcomer with 100 MB, beside sending: the list
// with its sums, a copy of each piece, and the digest at the end.
func BenchmarkLendingAState(b *testing.B) {
	from := taught(b, 1, 252, 32500, 4)
	b.SetBytes(100 << 20)
	for b.Loop() {
		k, err := from.state()
		require.NoError(b, err)
		_, data := pieces(b, k)
		host.Forget(data)
		_, err = from.digest()
		require.NoError(b, err)
	}
}
