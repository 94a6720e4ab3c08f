package bulk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// ragged is a connection whose reads and writes fall apart into pieces of random lengths.
type ragged struct {
	net.Conn
	mu sync.Mutex
	r  *rand.Rand
}

func (c *ragged) piece(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(n, 1+c.r.IntN(1<<(2+c.r.IntN(17))))
}

func (c *ragged) Read(b []byte) (int, error) { return c.Conn.Read(b[:c.piece(len(b))]) }

func (c *ragged) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		var k int
		k, err = c.Conn.Write(b[:c.piece(len(b))])
		n, b = n+k, b[k:]
	}
	return n, err
}

func overRagged(r *rand.Rand, n int) [2]*lane.End {
	var sides [2][]net.Conn
	for range n {
		a, b := net.Pipe()
		for i, conn := range []net.Conn{a, b} {
			sides[i] = append(sides[i], &ragged{Conn: conn, r: rand.New(rand.NewPCG(r.Uint64(), 0))})
		}
	}
	return [2]*lane.End{newEnd(sides[0]), newEnd(sides[1])}
}

// blank is tensors as a frame announces them.
func blank(ts []wire.Tensor) []wire.Tensor {
	got := slices.Clone(ts)
	for i := range got {
		got[i].Buf = nil
	}
	return got
}

func contents(t testing.TB, x wire.Tensor) []byte {
	raw := make([]byte, x.Buf.Len())
	require.NoError(t, x.Buf.Device().Download(raw, x.Buf, 0))
	return raw
}

func randomTensors(t testing.TB, r *rand.Rand, from device.Device, to device.ID) []wire.Tensor {
	ts := make([]wire.Tensor, 1+r.IntN(4))
	for i := range ts {
		switch n := []int{0, 1, 1 + r.IntN(1000), blockBytes/4 - 1 + r.IntN(3), r.IntN(blockBytes)}[r.IntN(5)]; {
		case i > 0 && r.IntN(8) == 0: // absent
		default:
			ts[i] = tensorOn(t, from, n)
			ts[i].Device = to
		}
	}
	ts[0].Buf.Release()
	ts[0] = tensorOn(t, from, 1+r.IntN(blockBytes/2))
	ts[0].Device = to
	return ts
}

// settled says whether an end waits for nothing.
func settled(e lane.Channel) bool {
	h := e.(*channel)
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.in) == 0 && len(h.out) == 0 && len(h.ready) == 0 && h.owed == 0
}

var errFull = errors.New("no room")

// transferAtRandom moves tensors one way, with everything that can come between; it says whether
// they arrived.
func transferAtRandom(t testing.TB, p *haulers, r *rand.Rand, ends, sims [2]device.Device) {
	from := r.IntN(2)
	ts := randomTensors(t, r, ends[from], sims[1-from].ID())
	got := blank(ts)
	defer lane.ReleaseAll(got)
	defer lane.ReleaseAll(ts)
	out, err := p.ends[from].Begin(ts)
	require.NoError(t, err)
	sending, stopSending := context.WithCancel(context.Background())
	receiving, stopReceiving := context.WithCancel(context.Background())
	defer stopSending()
	defer stopReceiving()
	pause := time.Duration(r.IntN(400)) * time.Microsecond
	mishap := r.IntN(8)
	var wg sync.WaitGroup
	var sent, fetched error
	places := 0
	wg.Go(func() {
		if mishap == 0 {
			out.Abandon()
			sent = context.Canceled
			return
		}
		sent = out.Deliver(sending)
		if sent != nil { // what is not held may be written to
			for _, x := range ts {
				if x.Buf != nil && x.Buf.Exclusive() {
					require.NoError(t, x.Buf.Device().Upload(x.Buf, 0, make([]byte, x.Buf.Len())))
				}
			}
		}
	})
	wg.Go(func() {
		if mishap == 1 {
			p.ends[1-from].Refuse(out.Ticket())
			fetched = wire.ErrReset
			return
		}
		fetched = p.ends[1-from].Fetch(receiving, out.Ticket(), got, func(id device.ID, n int) (*device.Buffer, error) {
			if places++; mishap == 2 && places == len(ts) {
				return nil, errFull
			}
			return sims[1-from].Alloc(n)
		})
	})
	if mishap == 3 || mishap == 4 {
		wg.Go(func() {
			time.Sleep(pause)
			if mishap == 3 {
				stopSending()
			} else {
				stopReceiving()
			}
		})
	}
	wg.Wait()
	if mishap > 4 {
		require.NoError(t, sent)
		require.NoError(t, fetched)
	}
	for i := range got {
		switch {
		case fetched != nil || ts[i].Buf == nil:
			require.Nil(t, got[i].Buf)
		default:
			require.True(t, bytes.Equal(pattern(ts[i].Buf.Len()), contents(t, got[i])), "tensor %d", i)
		}
	}
}

func TestTransfersArriveWholeOrNotAtAllWhateverComesBetween(t *testing.T) {
	leak.Check(t)
	for seed := range uint64(soak.Cases(5)) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := join(t, overRagged(r, 1+r.IntN(3)))
		here, there := device.NewSim(device.SimConfig{}), device.NewSim(device.SimConfig{Index: 1})
		senders := [2]device.Device{device.Host(), here}
		if r.IntN(2) == 0 {
			senders = [2]device.Device{here, device.Host()}
		}
		receivers := [2]device.Device{there, device.Host()}
		var wg sync.WaitGroup
		for range 4 {
			mine := rand.New(rand.NewPCG(r.Uint64(), 2))
			wg.Go(func() {
				for range 6 {
					transferAtRandom(t, p, mine, senders, receivers)
				}
			})
		}
		wg.Wait()
		require.Eventually(t, func() bool { return settled(p.ends[0]) && settled(p.ends[1]) }, 10*time.Second, time.Millisecond,
			"what was given up is forgotten when its last block has come")
		require.Empty(t, p.suspect)
		require.Zero(t, here.Stats().Live)
		require.Zero(t, there.Stats().Live)
		x := []wire.Tensor{tensorOn(t, device.Host(), blockBytes)}
		got := blank(x)
		sent, fetched := p.move(t.Context(), 0, x, got, nil)
		require.NoError(t, sent)
		require.NoError(t, fetched)
		require.Equal(t, contents(t, x[0]), contents(t, got[0]), "the stripes are in step")
		require.Positive(t, p.count[0].Sent.Load())
		require.Positive(t, p.count[1].Received.Load())
		lane.ReleaseAll(x)
		lane.ReleaseAll(got)
	}
}

func TestTensorsTravelOverTLS(t *testing.T) {
	leak.Check(t)
	p := join(t, overTLS(t, 3))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			c, cancel := context.WithCancel(t.Context())
			defer cancel()
			x := []wire.Tensor{tensorOn(t, device.Host(), 1<<20+i)}
			got := blank(x)
			defer lane.ReleaseAll(x)
			defer lane.ReleaseAll(got)
			if i == 3 { // one that is interrupted while a TLS record is being read does the others no harm
				time.AfterFunc(time.Millisecond, cancel)
			}
			sent, fetched := p.move(c, i%2, x, got, nil)
			if fetched == nil {
				require.Equal(t, contents(t, x[0]), contents(t, got[0]))
			}
			if i < 3 {
				require.NoError(t, sent)
				require.NoError(t, fetched)
			}
		})
	}
	wg.Wait()
	require.Empty(t, p.suspect)
}

// lonely is an end whose peer is the test: it gets what the end says, and holds the other ends of
// its stripes.
func lonely(t testing.TB, stripes int) (h *channel, peers []net.Conn, said chan word, suspect chan error) {
	var here []net.Conn
	for range stripes {
		a, b := net.Pipe()
		here, peers = append(here, a), append(peers, b)
	}
	said, suspect = make(chan word, 100), make(chan error, 100)
	h = newChannel(lane.Env{
		Say: func(b []byte) error {
			w, err := parseWord(b)
			require.NoError(t, err)
			said <- w
			return nil
		},
		Suspect: func(err error) { suspect <- err },
		Count:   &lane.Traffic{},
	}, here)
	t.Cleanup(func() { h.Close(wire.ErrClosed); closeAll(peers) })
	return h, peers, said, suspect
}

func head(id, block uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, id), block)
}

// fetching has h fetch transfer 7 of two blocks.
func fetching(t testing.TB, h *channel, said chan word) chan error {
	done := make(chan error, 1)
	ts := []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{blockBytes/4 + 1}}}
	go func() {
		err := h.Fetch(context.Background(), ticket{7, blockBytes + 4}.append(nil), ts, nil)
		lane.ReleaseAll(ts)
		done <- err
	}()
	require.Equal(t, word{wordGo, 7, 0}, <-said)
	return done
}

func TestBlocksThatNobodyAskedForBreakTheRules(t *testing.T) {
	block := func(id, n uint64, bytes int) []byte { return append(head(id, n), make([]byte, bytes)...) }
	for name, sent := range map[string][]byte{
		"an unknown transfer":   head(8, 0),
		"a block out of range":  head(7, 2),
		"a block far out":       head(7, 1<<63),
		"a block twice":         append(block(7, 1, 4), head(7, 1)...),
		"a block once complete": append(append(block(7, 0, blockBytes), block(7, 1, 4)...), head(7, 0)...),
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			h, peers, said, suspect := lonely(t, 1)
			done := fetching(t, h, said)
			_, _ = peers[0].Write(sent)
			err := <-suspect
			require.ErrorIs(t, err, wire.ErrFrame)
			h.Close(err) // as the link does
			if name != "a block once complete" {
				require.ErrorIs(t, <-done, wire.ErrFrame)
			} else {
				require.NoError(t, <-done)
			}
		})
	}
}

func TestWordsThatBreakTheRulesAreErrors(t *testing.T) {
	leak.Check(t)
	h, _, said, _ := lonely(t, 1)
	x := []wire.Tensor{tensorOn(t, device.Host(), 4)}
	defer lane.ReleaseAll(x)
	out, err := h.Begin(x)
	require.NoError(t, err)
	done := fetching(t, h, said)
	for _, w := range []word{{wordGo, 1, 0}, {wordStop, 1 << 60, 0}, {wordOver, 8, 0}, {wordOver, 7, 3}, {0, 0, 0}, {9, 0, 0}, {wordGo, 0, 1}} {
		require.ErrorIs(t, h.Control(w.append(nil)), wire.ErrFrame, "%+v", w)
	}
	require.ErrorIs(t, h.Control(nil), wire.ErrFrame)
	require.NoError(t, h.Control(word{wordGo, 0, 0}.append(nil)))
	require.ErrorIs(t, h.Control(word{wordGo, 0, 0}.append(nil)), wire.ErrFrame, "a second go")
	require.NoError(t, h.Control(word{wordOver, 7, 0}.append(nil)))
	require.ErrorIs(t, <-done, wire.ErrReset)
	require.ErrorIs(t, h.Control(word{wordOver, 7, 0}.append(nil)), wire.ErrFrame, "it is forgotten")
	out.Abandon()
	require.Equal(t, word{wordOver, 0, 0}, <-said)
	require.NoError(t, h.Control(word{wordGo, 0, 0}.append(nil)), "the receiver may not have heard")
	require.Equal(t, word{wordOver, 0, 0}, <-said)
}

func TestTicketsThatBreakTheRulesAreErrors(t *testing.T) {
	leak.Check(t)
	h, _, said, _ := lonely(t, 1)
	ts := []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{2}}, {}}
	for _, ticket := range [][]byte{nil, make([]byte, 15), make([]byte, 17), ticket{1, 0}.append(nil), ticket{1, -8}.append(nil)} {
		require.ErrorIs(t, h.Fetch(t.Context(), ticket, ts, nil), wire.ErrFrame)
		h.Refuse(ticket)
	}
	require.Empty(t, said)
	require.ErrorIs(t, h.Fetch(t.Context(), ticket{1, 12}.append(nil), ts, nil), wire.ErrFrame, "another sum than the table's")
	require.Equal(t, word{wordStop, 1, 0}, <-said)
	done := fetching(t, h, said)
	again := []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{blockBytes/4 + 1}}}
	require.ErrorIs(t, h.Fetch(t.Context(), ticket{7, blockBytes + 4}.append(nil), again, nil), wire.ErrFrame)
	require.Nil(t, again[0].Buf)
	require.Empty(t, said, "the first of that name goes on")
	h.Close(wire.ErrClosed)
	require.ErrorIs(t, <-done, wire.ErrClosed)
}

func TestAPeerThatOwesTooManyEndsBreaksTheRules(t *testing.T) {
	leak.Check(t)
	said := 0
	h := newChannel(lane.Env{Say: func([]byte) error { said++; return nil }, Suspect: func(error) {}, Count: &lane.Traffic{}}, nil)
	suspect := make(chan error, 1)
	h.env.Suspect = func(err error) { suspect <- err }
	c, cancel := context.WithCancel(t.Context())
	cancel()
	for id := range uint64(maxOwed + 1) {
		ts := []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{1}}}
		require.ErrorIs(t, h.Fetch(c, ticket{id, 4}.append(nil), ts, nil), context.Canceled)
	}
	require.ErrorIs(t, <-suspect, wire.ErrFrame)
	h.Close(wire.ErrClosed)
}

func TestWhatIsUnderWayWhenAStripeBreaksHearsWhyTheLinkEnded(t *testing.T) {
	leak.Check(t)
	h, peers, said, suspect := lonely(t, 2)
	done := fetching(t, h, said)
	require.NoError(t, peers[1].Close())
	require.ErrorIs(t, <-suspect, io.EOF)
	_, err := h.Begin([]wire.Tensor{{}})
	require.ErrorIs(t, err, errNothing)
	x := []wire.Tensor{tensorOn(t, device.Host(), 1)}
	defer lane.ReleaseAll(x)
	_, err = h.Begin(x)
	require.ErrorIs(t, err, io.EOF, "the next lane is asked")
	h.Close(wire.ErrPeerLost)
	require.ErrorIs(t, <-done, wire.ErrPeerLost)
	_, err = h.Begin(x)
	require.ErrorIs(t, err, wire.ErrPeerLost)
}

func TestWhatIsUnderWayWhenAStripeBreaksFailsThoughTheLinkLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, peers, said, suspect := lonely(t, 1)
		done := fetching(t, h, said)
		broke := time.Now()
		require.NoError(t, peers[0].Close())
		require.ErrorIs(t, <-suspect, io.EOF)
		require.ErrorIs(t, <-done, wire.ErrReset)
		require.Equal(t, lane.VerdictTimeout, time.Since(broke))
	})
}

// stuck gives up a transfer of one block of x, whose stripe nobody reads.
func stuck(t *testing.T, h *channel, said chan word, x wire.Tensor) {
	out, err := h.Begin([]wire.Tensor{x})
	require.NoError(t, err)
	require.NoError(t, h.Control(word{wordGo, 0, 0}.append(nil)))
	why := errors.New("changed my mind")
	c, cancel := context.WithCancelCause(t.Context())
	sent := make(chan error, 1)
	go func() { sent <- out.Deliver(c) }()
	for taken := uint64(0); taken == 0; {
		h.mu.Lock()
		taken = out.(*outgoing).sent
		h.mu.Unlock()
	}
	cancel(why)
	if err := <-sent; err != nil { // a copy may have been the last that was needed
		require.ErrorIs(t, err, why)
	}
	require.Empty(t, said, "the one block is on its way: no over is said")
}

func TestWhoGivesUpWhileAWriteIsStuckIsBackAtOnceAndTheWriteHoldsItsTensor(t *testing.T) {
	for name, end := range map[string]func(h *channel, peer net.Conn) error{
		"the stripe moves": func(_ *channel, peer net.Conn) error {
			_, err := io.CopyN(io.Discard, peer, blockHead+blockBytes)
			return err
		},
		"the stripe breaks":   func(_ *channel, peer net.Conn) error { return peer.Close() },
		"the channel is over": func(h *channel, _ net.Conn) error { h.Close(wire.ErrClosed); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			h, peers, said, _ := lonely(t, 1)
			x := tensorOn(t, device.Host(), blockBytes/4)
			stuck(t, h, said, x)
			require.False(t, x.Buf.Exclusive())
			require.NoError(t, end(h, peers[0]))
			require.Eventually(t, x.Buf.Exclusive, 5*time.Second, time.Millisecond)
			require.NoError(t, x.Buf.Release())
		})
	}
}

func TestATensorWhoseOwnerIsGoneIsWrittenAsItWas(t *testing.T) {
	leak.Check(t)
	h, peers, said, _ := lonely(t, 1)
	x := tensorOn(t, device.Host(), blockBytes/4)
	stuck(t, h, said, x)
	require.NoError(t, x.Buf.Release(), "the last reference but the write's")
	other := tensorOn(t, device.Host(), blockBytes/4) // would lie where the first lay
	require.NoError(t, device.Host().Upload(other.Buf, 0, make([]byte, blockBytes)))
	got := make([]byte, blockHead+blockBytes)
	_, err := io.ReadFull(peers[0], got)
	require.NoError(t, err)
	require.Equal(t, append(head(0, 0), pattern(blockBytes)...), got)
	require.NoError(t, other.Buf.Release())
}

func TestATensorOfAnotherDeviceIsCopiedAndNotHeld(t *testing.T) {
	leak.Check(t)
	h, peers, said, _ := lonely(t, 1)
	sim := device.NewSim(device.SimConfig{})
	x := tensorOn(t, sim, blockBytes/4)
	stuck(t, h, said, x)
	require.True(t, x.Buf.Exclusive())
	require.NoError(t, x.Buf.Release())
	require.Zero(t, sim.Stats().Live)
	got := make([]byte, blockHead+blockBytes)
	_, err := io.ReadFull(peers[0], got)
	require.NoError(t, err)
	require.Equal(t, append(head(0, 0), pattern(blockBytes)...), got)
}

// counting counts the writes of a connection.
type counting struct {
	net.Conn
	n atomic.Int64
}

func (c *counting) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}

func TestManySmallTensorsShareFewWrites(t *testing.T) {
	leak.Check(t)
	a, b := net.Pipe()
	here := &counting{Conn: a}
	p := join(t, [2]*lane.End{newEnd([]net.Conn{here}), newEnd([]net.Conn{b})})
	for _, n := range []int{1, 100, recordBytes/4 - 5, recordBytes/4 - 4, recordBytes/4 - 3, recordBytes / 4, recordBytes/4 + 1} {
		var ts []wire.Tensor
		bytes := 0
		for bytes < 2*blockBytes && len(ts) < 1000 {
			ts = append(ts, tensorOn(t, device.Host(), n))
			bytes += 4 * n
		}
		got := blank(ts)
		before := here.n.Load()
		sent, fetched := p.move(t.Context(), 0, ts, got, nil)
		require.NoError(t, sent)
		require.NoError(t, fetched)
		for i := range ts {
			require.Equal(t, contents(t, ts[i]), contents(t, got[i]))
		}
		blocks, records := int(blocksOf(int64(bytes))), bytes/recordBytes
		require.LessOrEqual(t, int(here.n.Load()-before), 2*blocks+records, "%d numbers each", n)
		lane.ReleaseAll(ts)
		lane.ReleaseAll(got)
	}
}

func TestALinkThatEndsWhileAWordIsSaidEndsTheHauler(t *testing.T) {
	leak.Check(t)
	here, there := net.Pipe()
	defer there.Close()
	var h *channel
	h = newChannel(lane.Env{Say: func([]byte) error { h.Close(wire.ErrPeerLost); return wire.ErrPeerLost }, Suspect: func(error) {}, Count: &lane.Traffic{}}, []net.Conn{here})
	ts := []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{1}}}
	require.ErrorIs(t, h.Fetch(t.Context(), ticket{7, 4}.append(nil), ts, nil), wire.ErrPeerLost)
	require.Nil(t, ts[0].Buf)
}
