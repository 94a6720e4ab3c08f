package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
)

func TestAnAgentTakesNoWorkersStoreThatIsNotAtItsRoundsFirstNode(t *testing.T) {
	names := map[string][]string{"node0": {"10.0.0.1", "fd00::1"}, "front": {"192.0.2.9"}}
	down := errors.New("the name service is away")
	for _, x := range []struct {
		said, first, own string
		want             error
		text             string
	}{
		{said: "10.0.0.1:29500", first: "10.0.0.1"},
		{said: "10.0.0.1:29500", first: "node0"},
		{said: "[fd00::1]:29500", first: "node0"},
		{said: "[::ffff:10.0.0.1]:29500", first: "10.0.0.1"},
		{said: "[fe80::1%eth1]:29500", first: "fe80::1%eth0"},
		{said: "192.0.2.9:29500", first: "10.0.0.1", own: "front"},
		{said: "192.0.2.9:29500", first: "nowhere", own: "front"},
		{said: "0.0.0.0:29500", first: "10.0.0.1", own: "0.0.0.0"},
		{said: "10.6.6.6:29500", first: "node0", want: ErrMaster, text: "said to have it at 10.6.6.6:29500, but the node with rank 0 is at node0"},
		{said: "10.6.6.6:29500", first: "10.0.0.1", own: "front", want: ErrMaster, text: "the node with rank 0 is at 10.0.0.1, and --master-addr is front"},
		{said: "10.6.6.6:29500", first: "nowhere", want: down, text: "whether the workers' store is at 10.6.6.6:29500"},
		{said: "evil.example:29500", first: "10.0.0.1", want: ErrMaster, text: "expected an IP address and a port"},
		{said: "10.0.0.1:0", first: "10.0.0.1", want: ErrMaster},
		{said: "\x1b[2J", first: "10.0.0.1", want: ErrMaster, text: `got "\x1b[2J"`},
		{said: "10.0.0.1:29500", first: "", want: ErrMaster},
	} {
		synctest.Test(t, func(t *testing.T) {
			spec := Spec{MasterAddr: x.own, lookup: func(_ context.Context, host string) ([]string, error) {
				if all := names[host]; all != nil {
					return all, nil
				}
				return nil, down
			}}
			c, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := spec.checkMaster(c, rdzv.Placement{Round: 3, MasterAddr: x.first}, x.said)
			require.ErrorIs(t, err, x.want, "%+v", x)
			if x.text != "" {
				require.ErrorContains(t, err, x.text)
			}
		})
	}
}

func TestAForgedAddressOfTheWorkersStoreStartsNoWorker(t *testing.T) {
	seeking(t, 0, func(t *testing.T, m *meeting, st *remote) {
		require.NoError(t, st.Set(t.Context(), "master/4", []byte("10.6.6.6:29500")))
		m.waits.reset(m.spec, time.Now())
		m.clear(m.shut(second.Round).round)
		b := m.shut(second.Round)
		m.clear(second.Round)
		require.NoError(t, st.Set(t.Context(), "clear/4", nil))
		found, stop := m.look(t.Context(), news{Action: rdzv.Action{Placement: second}}, b)
		defer stop()
		n := <-found
		require.ErrorIs(t, n.err, ErrMaster, "the agent ends with it, and starts nothing")
		m.runs.Wait()
	})
}
