package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

const serverName = "server"

// reportEvery is how many steps a trainer makes before it tells the server of them.
const reportEvery = 20

// trainer goes through its share of the text. It keeps nothing of the model: every step asks the
// server for the rows that it needs, and sends their gradients back.
type trainer struct {
	w     *rpc.Worker
	api   api
	opt   *optim.Distributed
	pairs pairs
	batch int
}

// train is the whole life of a trainer.
func train(c context.Context, s settings, d *corpus, place store.Rendezvous) error {
	w, err := rpc.Join(c, rpc.Config{Name: fmt.Sprintf("trainer%d", place.Rank), Rank: place.Rank, Store: place.Store, Dynamic: true})
	if err != nil {
		return err
	}
	t := &trainer{w: w, api: newAPI(nil), batch: s.batch}
	t.pairs = pairs{d: d, shard: d.shard(place.Rank-1, place.WorldSize-1), src: rand.New(rand.NewPCG(s.seed, uint64(1+place.Rank)))}
	if err := t.steps(w.Context(c), s); err != nil {
		return errors.Join(err, w.Close())
	}
	return w.Leave(c)
}

// steps makes all steps.
func (t *trainer) steps(c context.Context, s settings) error {
	if err := t.await(c); err != nil {
		return err
	}
	params, err := t.api.tables.Call(c, serverName, greeting{t.w.Name(), os.Getpid()})
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range params {
			p.Release()
		}
	}()
	if t.opt, err = optim.NewDistributed(c, optim.Adagrad{LR: s.lr}, params...); err != nil {
		return err
	}
	defer t.opt.Release()
	p := progress{Trainer: t.w.Name()}
	for n := 1; n <= s.steps; n++ {
		loss, err := t.step(c)
		if err != nil {
			return fmt.Errorf("step %d: %w", n, err)
		}
		if p.Losses = append(p.Losses, loss); n%reportEvery == 0 || n == s.steps {
			if _, err := t.api.report.Call(c, serverName, p); err != nil {
				return err
			}
			p.Losses = nil
		}
	}
	return nil
}

// await waits for the server, which may join after its trainers.
func (t *trainer) await(c context.Context) error {
	c, cancel := context.WithCancel(c)
	defer cancel()
	for e := range t.w.Peers(c) {
		if e.Name == serverName && e.Change == rpc.PeerJoined {
			return nil
		}
	}
	return context.Cause(c)
}

// step guesses, for each word of a batch, which of the batch's neighbours was its own: the more two
// words have in common, the larger is the product of their rows. It gives the loss before the step.
func (t *trainer) step(c context.Context) (value float64, err error) {
	words, near := t.pairs.batch(t.batch)
	own := make([]int64, len(words))
	for i := range own {
		own[i] = int64(i)
	}
	err = t.w.Pass(c, func(c context.Context) error {
		q := query{ctx.Own(c, autodiff.New(words)), ctx.Own(c, autodiff.New(near))}
		r, err := t.api.lookup.Call(c, serverName, q)
		if err != nil {
			return err
		}
		loss := nn.CrossEntropy(autodiff.MatMulT(r.Words, r.Near, false, true), autodiff.New(own))
		if err := ctx.Backward(c, loss); err != nil {
			return err
		}
		if err := t.opt.Step(c); err != nil {
			return err
		}
		value, err = loss.Item()
		return err
	})
	if err == nil && (math.IsNaN(value) || math.IsInf(value, 0)) {
		err = fmt.Errorf("the loss is %v; a smaller --lr may help", value)
	}
	return value, err
}
