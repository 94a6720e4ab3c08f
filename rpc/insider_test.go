package rpc

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/hostile"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// A member with the job's token knows how to greet.
func TestAMemberThatGreetsInTheNameOfALivingWorkerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs journal
		ws, n := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, func(_ int, cfg *Config) { cfg.Logger, cfg.Functions = logs.logger(), []Function{double} })
		for i, change := range []func(m *roster.Member){
			func(m *roster.Member) { m.Incarnation++ },
			func(m *roster.Member) { m.Incarnation += 1 << 40 },
			func(m *roster.Member) { m.Name, m.Incarnation = "other", m.Incarnation+1 },
			func(m *roster.Member) { m.Name = "worker2"; m.Incarnation = 1 << 60 },
			func(m *roster.Member) { m.Rank, m.Incarnation = 2, 1<<60 },
		} {
			h := wire.HelloHeader{Member: ws[1].members.Me, To: "worker0", Life: ws[0].epoch}
			h.Addr = "insider:1"
			change(&h.Member)
			link, err := n.Host("insider").Dial(t.Context(), ws[0].members.Listener.Addr())
			require.NoError(t, err)
			reply, err := exchange(t.Context(), link, &transport.Message{Kind: wire.KindHello, Header: rawHeader(t, h)}, nil)
			require.NoError(t, err)
			err = answered(reply)
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, "comes in the place of another")
			require.NoError(t, link.Close(""))
			require.Equal(t, i+1, logs.count("refused a link"), "one line says who and why")
		}
		for _, name := range []string{"worker1", "worker2"} {
			requireCall(t, ws[0], name)
		}
	})
}

func TestNewsOfALifeThatTheStoreDoesNotKnowIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs journal
		ws, _ := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, func(_ int, cfg *Config) { cfg.Logger, cfg.Functions = logs.logger(), []Function{double} })
		impostor := ws[2].members.Me
		impostor.Incarnation, impostor.Addr = impostor.Incarnation+1, "insider:1"
		teller := ws[0].members.PeerAt(1)
		for _, state := range []roster.State{roster.Known, roster.Leaving, roster.Left, roster.Lost} {
			raw := rawHeader(t, wire.NewsHeader{News: []roster.News{{State: state, Member: impostor, Cause: "a lie"}}})
			require.NoError(t, ws[0].members.ServeNews(teller, &transport.Message{Kind: wire.KindNews, Header: raw}))
		}
		require.Equal(t, 4, logs.count("does not believe news"))
		require.Equal(t, ws[2].epoch, ws[0].members.PeerAt(2).Node.Epoch)
		requireCall(t, ws[0], "worker2")

		raw, err := wire.Encode(impostor) // what the store has is believed
		require.NoError(t, err)
		require.NoError(t, ws[0].members.Registry.Store.Set(t.Context(), membership.RankKey(2), raw))
		require.NoError(t, ws[0].members.Proven(t.Context(), &impostor))
		impostor.Addr = "insider:2"
		require.ErrorContains(t, ws[0].members.Proven(t.Context(), &impostor), "the store has another life at that rank")
	})
}

// Two workers have certificates of one CA; the second is another than it says.
func TestAWorkerGreetsUnderNoNameThatItsCertificateDoesNotHave(t *testing.T) {
	leak.Check(t)
	files, err := hostile.Certificates(t.TempDir(), "weft://job-7/worker0", "weft://job-7/worker1?rank=1")
	require.NoError(t, err)
	cfg := Config{WorldSize: 2, Job: "job-7", Functions: []Function{double}, JoinTimeout: time.Minute, Logger: discard,
		Certificates: transport.IdentityFiles{CA: files.CA, Cert: files.Cert, Key: files.Key}}
	for _, wrong := range []func(cfg *Config){
		func(cfg *Config) { cfg.Name = "worker2" },
		func(cfg *Config) { cfg.Name = "worker1" }, // of rank 1 alone
		func(cfg *Config) { cfg.Job = "job-8" },
	} {
		bad := cfg
		bad.Store = memory(t)
		wrong(&bad)
		_, err := Join(t.Context(), bad)
		require.ErrorIs(t, err, transport.ErrIdentity, "it is told before it claims anything")
		require.ErrorContains(t, err, "expected")
	}

	var logs journal
	cfg.Store, cfg.Logger = memory(t), logs.logger()
	leader := make(chan error, 1)
	var w0 *Worker
	first := cfg
	go func() {
		var err error
		w0, err = Join(t.Context(), first)
		leader <- err
	}()
	cfg.Rank = 1
	impostor := cfg
	impostor.Name = "impostor"
	impostor.Network = network(t, cfg.Certificates, "job-7") // without the look at its own certificate
	c, caught := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		_, err := Join(c, impostor)
		over <- err
	}()
	eventually(t, "the impostor is found out", func() bool { return logs.count("is not for impostor of rank 1") > 0 })
	caught()
	require.Error(t, <-over)
	w1, err := Join(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, <-leader)
	requireCall(t, w0, "worker1")
	leaveAll(t, []*Worker{w0, w1})
}

// Nobody else is there to refuse it.
func TestAWorkerOfADynamicWorldComesAsItsCertificateHasItOrNotAtAll(t *testing.T) {
	leak.Check(t)
	files, err := hostile.Certificates(t.TempDir(), "weft://job-7/worker2?rank=2", "weft://job-7/named?rank=4", "weft://job-7/free")
	require.NoError(t, err)
	cfg := Config{Dynamic: true, Job: "job-7", JoinTimeout: time.Minute, Logger: discard,
		Certificates: transport.IdentityFiles{CA: files.CA, Cert: files.Cert, Key: files.Key}}
	for _, c := range []struct {
		name string
		rank int
		want string // "" where it is refused
	}{
		{"", 0, "worker2 of rank 2"}, {"", 2, "worker2 of rank 2"}, {"named", 0, "named of rank 4"}, {"free", 0, "free of rank 0"}, {"free", 9, "free of rank 9"},
		{"", 1, ""}, {"", 4, ""}, {"named", 2, ""}, {"other", 0, ""},
	} {
		cfg := cfg
		cfg.Store, cfg.Name, cfg.Rank = memory(t), c.name, c.rank
		w, err := Join(t.Context(), cfg)
		if c.want != "" {
			require.NoError(t, err, c)
			require.Equal(t, c.want, fmt.Sprintf("%s of rank %d", w.Name(), w.Rank()))
			leaveAll(t, []*Worker{w})
			continue
		}
		require.ErrorIs(t, err, transport.ErrIdentity, c)
		require.ErrorContains(t, err, "this worker's own certificate")
		keys, err := cfg.Store.NumKeys(t.Context())
		require.NoError(t, err)
		require.Zero(t, keys, "it is told before it says anything")
	}
}

func network(t *testing.T, files transport.IdentityFiles, job string) transport.Network {
	files.Job = job
	id, err := transport.IdentityFromFiles(files)
	require.NoError(t, err)
	n, err := transport.New(transport.Config{Identity: id, Logger: discard})
	require.NoError(t, err)
	return n
}

func TestWorkersOfTwoJobsWithOneTokenRefuseEachOther(t *testing.T) {
	leak.Check(t)
	st := memory(t)
	cfg := Config{Store: st, WorldSize: 2, Token: testToken, Job: "job-7", JoinTimeout: time.Minute, Logger: discard}
	other := cfg
	leader := make(chan error, 1)
	var w0 *Worker
	go func() {
		var err error
		w0, err = Join(t.Context(), cfg)
		leader <- err
	}()
	other.Rank, other.Job = 1, "job-8"
	_, err := Join(t.Context(), other)
	require.ErrorIs(t, err, transport.ErrIdentity)
	require.ErrorContains(t, err, "another job's id")
	t.Setenv(JobVariable, "job-7") // as weft run and torchrun set it
	other.Job = ""
	w1, err := Join(t.Context(), other)
	require.NoError(t, err)
	require.NoError(t, <-leader)
	leaveAll(t, []*Worker{w0, w1})
}
