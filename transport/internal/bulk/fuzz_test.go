package bulk

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// FuzzBulkWire feeds the lane's small parsers: what they accept is the one way to write it.
func FuzzBulkWire(f *testing.F) {
	f.Add([]byte{4})
	f.Add(answer{2, 4711}.append(nil))
	f.Add(ticket{7, 1 << 20}.append(nil))
	f.Add(word{wordOver, 3, 9}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(again []byte, err error) {
			if err != nil {
				require.ErrorIs(t, err, wire.ErrFrame)
				return
			}
			require.Equal(t, b, again)
		}
		n, err := parseOffer(b)
		check([]byte{byte(n)}, err)
		a, err := parseAnswer(b, maxStripes)
		check(a.append(nil), err)
		tk, err := parseTicket(b)
		check(tk.append(nil), err)
		w, err := parseWord(b)
		check(w.append(nil), err)
	})
}

// FuzzBulkPeer lets a peer say and send anything while a transfer goes each way: the channel
// neither crashes nor hangs, and what it fetched it was sent.
func FuzzBulkPeer(f *testing.F) {
	goes := word{wordGo, 0, 0}.append(nil)
	f.Add(goes, append(head(7, 0), 1, 2, 3, 4))
	f.Add(append(goes, word{wordStop, 0, 0}.append(nil)...), head(7, 1))
	f.Add(word{wordOver, 7, 0}.append(nil), head(8, 0))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, words, stripe []byte) {
		here, there := net.Pipe()
		broke := make(chan struct{})
		h := newChannel(lane.Env{Say: func([]byte) error { return nil }, Suspect: func(error) { close(broke) }, Count: &lane.Traffic{}}, []net.Conn{here})
		x := []wire.Tensor{tensorOn(t, device.Host(), 100)}
		out, err := h.Begin(x)
		require.NoError(t, err)
		c, cancel := context.WithCancel(t.Context())
		sent, fetched := make(chan error, 1), make(chan error, 1)
		go func() { sent <- out.Deliver(c) }()
		got := []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{1}}}
		go func() { fetched <- h.Fetch(c, ticket{7, 4}.append(nil), got, nil) }()
		for known := false; !known; {
			h.mu.Lock()
			known = h.in[7] != nil
			h.mu.Unlock()
		}
		go func() { // the peer takes what it is sent
			b := make([]byte, 1024)
			for {
				if _, err := there.Read(b); err != nil {
					return
				}
			}
		}()
		for len(words) > 0 {
			n := min(wordSize, len(words))
			if err := h.Control(words[:n]); err != nil {
				require.ErrorIs(t, err, wire.ErrFrame)
			}
			words = words[n:]
		}
		_, _ = there.Write(stripe)
		there.Close()
		<-broke
		cancel()
		<-sent
		if <-fetched == nil {
			require.Equal(t, stripe[blockHead:blockHead+4], contents(t, got[0]))
		}
		h.Close(wire.ErrClosed)
		lane.ReleaseAll(x)
		lane.ReleaseAll(got)
	})
}
