package pages

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/resilient"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

func learn(c context.Context, g *collective.Group, model nn.Sequential, opt *optim.Local, rows parallel.Rows, loss resilient.Loss, steps uint64) error {
	team, err := resilient.New(c, g, resilient.Config{Params: nn.Parameters(model), Optimizer: opt})
	if err != nil {
		return err
	}
	for step := team.Next(); step < steps; step = team.Next() {
		if _, err := team.Step(c, step, rows, loss); err != nil { // the mean loss over the rows of all
			return err
		}
	}
	return team.Close(c)
}

func come(c context.Context, w *rpc.Worker, model nn.Sequential, opt *optim.Local) (*resilient.Team, error) {
	return resilient.Join(c, w, "team", resilient.Config{Params: nn.Parameters(model), Optimizer: opt})
}

func work(c context.Context, m *elastic.Membership, cfg resilient.Config, rows parallel.Rows, loss resilient.Loss, steps uint64) error {
	return resilient.Each(c, m, cfg, func(c context.Context, _ *elastic.Epoch, team *resilient.Team) error {
		for step := team.Next(); step < steps; step = team.Next() {
			if _, err := team.Step(c, step, rows, loss); err != nil {
				return err
			}
		}
		return nil
	})
}

// pupil is a model that learns one number: the mean of the rows' numbers.
func pupil(t *testing.T, seed uint64) (model nn.Sequential, opt *optim.Local, loss resilient.Loss) {
	t.Helper()
	model = nn.NewMLP(rand.New(rand.NewPCG(seed, 1)), autodiff.GELU, 1, 1)
	opt, err := optim.NewGroups(optim.Named(optim.SGD{LR: 0.1}, nn.Parameters(model)))
	require.NoError(t, err)
	return model, opt, func(c context.Context, rows []int) (*autodiff.Tensor, error) {
		x := make([]float32, len(rows))
		for i, row := range rows {
			x[i] = float32(row)
		}
		in := autodiff.New(x, len(x), 1)
		time.Sleep(time.Millisecond) // so that who comes does so before the end
		y := model.Forward(autodiff.Scale(in, 0.1))
		return autodiff.Mean(autodiff.Mul(y, y)), nil
	}
}

func TestATeamLearnsAndTakesANewcomer(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	rows := parallel.Rows{Seed: 1, N: 10, Batch: 4}
	models := make([]nn.Sequential, 3)
	var all sync.WaitGroup
	for r, w := range ws {
		model, opt, loss := pupil(t, uint64(r))
		models[r] = model
		all.Go(func() {
			if r < 2 {
				g, err := collective.Open(t.Context(), w, "team", ws[0].Name(), ws[1].Name())
				if assert.NoError(t, err) {
					assert.NoError(t, learn(t.Context(), g, model, opt, rows, loss, 150))
				}
				return
			}
			team, err := come(t.Context(), w, model, opt)
			if !assert.NoError(t, err) {
				return
			}
			for team.Next() < 150 {
				_, err := team.Step(t.Context(), team.Next(), rows, loss)
				assert.NoError(t, err)
			}
			assert.NoError(t, team.Close(t.Context()))
		})
	}
	all.Wait()
	want, err := autodiff.Values[float32](models[0].Params()[0])
	require.NoError(t, err)
	for _, model := range models[1:] {
		got, err := autodiff.Values[float32](model.Params()[0])
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestAWorkerUnderALauncherMakesTheSteps(t *testing.T) {
	server, err := store.Serve(store.ServerConfig{Addr: "127.0.0.1:0"})
	require.NoError(t, err)
	defer server.Close()
	for k, v := range map[string]string{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
		"TORCHELASTIC_RESTART_COUNT": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": server.Addr()[len("127.0.0.1:"):], elastic.TokenVariable: transport.NewToken()} {
		t.Setenv(k, v)
	}
	m, err := elastic.Join(t.Context())
	require.NoError(t, err)
	defer m.Close()
	model, opt, loss := pupil(t, 1)
	made := uint64(0)
	cfg := resilient.Config{Params: nn.Parameters(model), Optimizer: opt, Made: func(resilient.Made) { made++ }}
	require.NoError(t, work(t.Context(), m, cfg, parallel.Rows{Seed: 1, N: 10, Batch: 4}, loss, 5))
	require.EqualValues(t, 5, made)
}
