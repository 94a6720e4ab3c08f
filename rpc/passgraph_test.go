package rpc

import (
	"bytes"
	"context"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/ctx/passgraph"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/trace"
	"github.com/weft-project/weft/transport/simnet"
)

// exampleGraph runs the example of the design document and gathers its graph.
func exampleGraph(t *testing.T, ws []*Worker) (g *passgraph.Graph) {
	t.Helper()
	t1, t2, t4 := autodiff.Rand(3, 3).RequireGrad(), autodiff.Rand(3, 3).RequireGrad(), autodiff.Rand(3, 3).RequireGrad()
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		t3, err := addFn.Call(c, "worker1", pair{t1, t2})
		require.NoError(t, err)
		require.NoError(t, ctx.Backward(c, autodiff.Sum(autodiff.Mul(t3, t4))))
		g, err = ctx.Graph(c)
		return err
	}))
	return g
}

func TestTheGraphOfTheDesignsExampleShowsBothWorkersAndTheirMessages(t *testing.T) {
	g := exampleGraph(t, world(t, 2, nil, serve(addFn)))
	require.Equal(t, []string{"worker0", "worker1"}, []string{g.Workers[0].Name, g.Workers[1].Name})
	var names []string
	for _, w := range g.Workers {
		require.Empty(t, w.Lost)
		for _, n := range w.Nodes {
			if n.Name != "" {
				names = append(names, n.Name)
			}
		}
	}
	require.Equal(t, []string{"add", "Mul", "Sum(axes=all, keep=false)", "Add", "the result of add"}, names)
	messages := 0
	for _, l := range g.Links() {
		if l.Message != 0 {
			messages++
		}
	}
	require.Equal(t, 2, messages)
	var b strings.Builder
	require.NoError(t, g.WriteSVG(&b))
	require.Contains(t, b.String(), "f32[3×3] · 36 B")
}

var update = flag.Bool("update", false, "write the picture of the README")

// Its times are another machine's: what is compared are the first lines of its boxes.
func TestThePictureOfTheReadmeIsThatOfTheDesignsExample(t *testing.T) {
	ws := world(t, 2, nil, func(_ int, cfg *Config) { cfg.Functions, cfg.Trace = []Function{addFn}, trace.Discard{} })
	var g *passgraph.Graph
	for range 20 { // the first one compiles
		g = exampleGraph(t, ws)
	}
	var b bytes.Buffer
	require.NoError(t, g.WriteSVG(&b))
	const file = "../docs/pass.svg"
	if *update {
		require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	names := regexp.MustCompile(`<text class="n"[^>]*>[^<]*</text>`)
	text := func(svg []byte) (out []string) {
		for _, s := range names.FindAllString(string(svg), -1) {
			out = append(out, s[strings.Index(s, ">"):])
		}
		return out
	}
	require.Len(t, text(have), 10, "three parameters, three functions, two messages")
	require.Equal(t, text(have), text(b.Bytes()), "run the test with -update")
}

func TestTheGraphOfAPassIsGatheredThroughOthersAndWithoutWhoIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var forward *Func[*autodiff.Tensor, *autodiff.Tensor]
		forward = Define("forward", func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
			w, _ := FromContext(c)
			if w.Rank() == 3 {
				return autodiff.ReLU(x), nil
			}
			return forward.Call(c, w.Workers()[w.Rank()+1].Name, x)
		})
		ws, net := simWith(t, 4, simnet.Config{}, serve(forward))
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			y, err := forward.Call(c, "worker1", autodiff.Rand(5).RequireGrad())
			require.NoError(t, err)
			g, err := ctx.Graph(c, autodiff.Sum(y))
			require.NoError(t, err)
			require.Len(t, g.Workers, 4)
			for _, w := range g.Workers {
				require.Empty(t, w.Lost, w.Name)
			}
			require.Len(t, g.Links(), 6+2+2+3+1, "six messages; what passes through, and ReLU between; the parameter, the root")
			net.Kill("host3")
			eventually(t, "worker0 notices", func() bool { return ws[0].members.PeerAt(3).Lost() != nil })
			g, err = ctx.Graph(c)
			require.NoError(t, err)
			require.Len(t, g.Workers, 4)
			require.Equal(t, "worker3", g.Workers[3].Name)
			require.NotEmpty(t, g.Workers[3].Lost)
			return nil
		}))
	})
}

func TestAPartOfAGraphThatIsTooLongForAHeaderIsCut(t *testing.T) {
	long := Define("long", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		for range passgraph.MaxNodes + 100 {
			x = autodiff.Neg(x)
		}
		return x, nil
	})
	ws := sim(t, 2, serve(long))
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		_, err := long.Call(c, "worker1", autodiff.Rand(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1).RequireGrad())
		require.NoError(t, err)
		g, err := ctx.Graph(c)
		require.NoError(t, err)
		require.Empty(t, g.Workers[1].Lost)
		require.Equal(t, passgraph.MaxNodes+102, len(g.Workers[1].Nodes)+g.Workers[1].Omitted)
		return nil
	}))
}

func TestAPartOfAGraphThatCannotBeReadIsRefusedBeforeThereIsMemoryForIt(t *testing.T) {
	for name, raw := range map[string][]byte{
		"nothing": nil, "no map": {1}, "a list without end": {0xa1, 5, 0x9b, 0, 0, 0, 1, 0, 0, 0, 0}, "text for a rank": {0xa1, 1, 0x61, 'x'},
	} {
		var w passgraph.Worker
		require.ErrorIs(t, decodeGraph(raw, &w), ErrProtocol, name)
	}
	want := passgraph.Worker{Rank: 1, Name: "worker\xff", Peers: []int{0, 2}, Held: 7, Nodes: []passgraph.Node{
		{Kind: passgraph.Recv, Message: 1 << 48, Peer: 2, Results: []passgraph.Type{{Dtype: device.Float32, Shape: device.Shape{2, 3}}, {Dtype: device.Int64}}},
		{Kind: passgraph.Function, Name: "f", Inputs: []passgraph.Input{{Slot: 1}, {}}, Root: true, Forward: 5, Backward: 6, Site: "a.go:1"},
	}}
	raw, err := wire.Encode(want)
	require.NoError(t, err)
	var have passgraph.Worker
	require.NoError(t, decodeGraph(raw, &have))
	require.Equal(t, want, have)
}
