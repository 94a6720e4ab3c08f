package rpc

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/codec"
	"github.com/weft-project/weft/rpc/internal/refs"
	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

var fuzzedTypes = []reflect.Type{
	reflect.TypeFor[everything](), reflect.TypeFor[tensorTree](), reflect.TypeFor[chain](), reflect.TypeFor[wide](),
	reflect.TypeFor[map[int8]*autodiff.Tensor](), reflect.TypeFor[[]RRef[int]](), reflect.TypeFor[timed](), reflect.TypeFor[*autodiff.Tensor](),
	reflect.TypeFor[[3][]*inner](), reflect.TypeFor[map[string][]float64](), reflect.TypeFor[recursiveMap](), reflect.TypeFor[[]struct{}](),
}

// Whatever arrives as arguments: no panic, memory in proportion to what arrived, and what is
// accepted can be sent on.
func FuzzArguments(f *testing.F) {
	m := &maker{tensors: []*autodiff.Tensor{nil, autodiff.Rand(2)}}
	for i := range fuzzedTypes {
		v := reflect.New(fuzzedTypes[i]).Elem()
		cd, err := forms.For(v.Type())
		require.NoError(f, err)
		var raw bytes.Buffer
		require.NoError(f, cd.Encode(&codec.Packing{}, v.Addr().Interface(), &raw))
		f.Add(byte(i), raw.Bytes())
	}
	f.Add(byte(3), []byte{0xa1, 0x61, 'L', 0x85, 0xf6, 0xf6, 0xf6, 0xf6, 0xf6})
	f.Add(byte(4), []byte{0xa1, 0x63, '3', '0', '0', 0x00})
	f.Add(byte(5), []byte{0x82, 1, 3})
	f.Fuzz(func(t *testing.T, which byte, raw []byte) {
		typ := fuzzedTypes[int(which)%len(fuzzedTypes)]
		cd, err := forms.For(typ)
		require.NoError(t, err)
		u := &codec.Unpacking{Tensors: m.tensors}
		for range 3 {
			u.Refs = append(u.Refs, (*pinnable)(failedRef(nil)))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		v := reflect.New(typ)
		err = cd.Decode(u, raw, v.Interface())
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(4<<20+4096*len(raw)); got > most {
			t.Fatalf("%d bytes allocated for %d", got, len(raw))
		}
		if err != nil {
			require.True(t, errors.Is(err, ErrArguments) || errors.Is(err, ErrProtocol), "%v", err)
			return
		}
		require.NoError(t, cd.Encode(&codec.Packing{}, v.Interface(), new(bytes.Buffer)))
	})
}

func FuzzHeaders(f *testing.F) {
	for _, h := range sampleHeaders() {
		f.Add(rawHeader(f, h))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, h := range sampleHeaders() {
			into := reflect.New(reflect.TypeOf(h)).Interface()
			if err := parseHeader(raw, into); err != nil {
				require.ErrorIs(t, err, ErrProtocol)
				continue
			}
			again := rawHeader(t, reflect.ValueOf(into).Elem().Interface())
			twice := reflect.New(reflect.TypeOf(h)).Interface()
			require.NoError(t, parseHeader(again, twice))
			require.Equal(t, again, rawHeader(t, reflect.ValueOf(twice).Elem().Interface()))
			if r, ok := into.(*wire.ReplyHeader); ok && r.Err != nil {
				require.NotNil(t, errorTypes{}.fromWire(r.Err).Error())
			}
		}
	})
}

// rawHeader is a header as it travels.
func rawHeader(t testing.TB, h any) []byte {
	t.Helper()
	var raw []byte
	var err error
	switch h := h.(type) {
	case wire.CallHeader:
		raw, err = h.Append(nil)
		raw = append(raw, h.Args...)
	case wire.ReplyHeader:
		raw, err = h.Append(nil)
		raw = append(raw, h.Value...)
	default:
		raw, err = wire.Encode(h)
	}
	require.NoError(t, err)
	return raw
}

func parseHeader(raw []byte, into any) error {
	switch h := into.(type) {
	case *wire.CallHeader:
		return h.Parse(raw)
	case *wire.ReplyHeader:
		return h.Parse(raw)
	}
	return wire.Decode(raw, into)
}

// answered is the error of an answer.
func answered(reply *transport.Message) error {
	defer reply.Release()
	return (&calling{}).parseReply(reply, &wire.ReplyHeader{})
}

func sampleHeaders() []any {
	pass := &wire.PassInfo{Pass: 1, Message: 2, Tensors: []wire.TensorInfo{{Requires: true, Origin: device.Sim(1)}},
		Past: ctx.Lineage{Parents: []ctx.MessageID{1}, Ancestors: []ctx.Ancestor{{ID: 1, Parents: []ctx.MessageID{5, 6}}}}}
	id := refs.ID{Owner: refs.Node{Rank: 1, Epoch: 5}, By: refs.Node{Rank: 0, Epoch: 7}, N: 1}
	shares := []refs.Share{{ID: id, N: 1}, {ID: id, N: 3}}
	control := []refs.Message{{Op: refs.Fork, N: 1, ID: id}, {Op: refs.Delete, N: 2, Given: true}, {Op: refs.Recall, N: 9}, {Op: refs.Abandon, N: 1}}
	return []any{
		wire.HelloHeader{Member: roster.Member{Name: "worker0", World: 2}, To: "worker1"}, wire.CallHeader{Function: "add", Args: []byte{0xa0}, Pass: pass, Timeout: time.Second, Ref: &id, Refs: shares, Ticket: 1},
		wire.ReplyHeader{Err: &wire.Error{Worker: "worker1", Text: "text", Kinds: []int{0, 99, -1}, Causes: []wire.Cause{{Name: "quota", Fields: []byte{0xa0}}}}}, wire.ReplyHeader{Value: []byte{1}, Pass: pass, Refs: shares},
		wire.GradientsHeader{Pass: 1, Message: 2, Backward: 3, Retain: true, Timeout: time.Second, Plan: ctx.Plan{2, 9}.Append(nil), Sparse: []wire.SparseInfo{{At: 0, Extent: 9}, {At: 2, Extent: 1}}}, wire.CleanupHeader{Pass: 1},
		wire.AbortHeader{Failure: ctx.Failure{Worker: "worker1", Pass: 1, Backward: 3, Cause: "text"}, Err: &wire.Error{Worker: "worker1", Text: "text"}}, wire.CallHeader{Ref: &id, Pass: pass, Timeout: time.Second, Ticket: 1}, wire.RefsHeader{Messages: control},
		roster.Member{Name: "worker0", Maps: map[string]device.Map{"worker1": {device.Sim(0): device.Sim(1)}}}, struct{}{},
	}
}

// A peer of the job that sends nonsense harms nobody: the worker answers, does not panic, and
// serves others.
func FuzzRequests(f *testing.F) {
	for kind := range byte(13) {
		for _, h := range sampleHeaders() {
			f.Add(kind, rawHeader(f, h), kind%3)
		}
	}
	var logs journal
	ws := sim(f, 2, func(_ int, cfg *Config) { cfg.Functions, cfg.Logger = []Function{addFn, double, echo}, logs.logger() })
	link, err := ws[0].members.PeerAt(1).Connection(f.Context())
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, kind byte, header []byte, tensors byte) {
		if kind == wire.KindNews {
			return // may well say, in good form, that worker0 has another life: see FuzzNews
		}
		c, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		m := &transport.Message{Kind: kind, Header: header}
		for range tensors % 4 {
			buf, err := device.Host().Alloc(8)
			require.NoError(t, err)
			m.Tensors = append(m.Tensors, transport.Tensor{Dtype: device.Float32, Shape: device.Shape{2}, Buf: buf})
		}
		defer m.Release()
		s, err := link.Open(c)
		require.NoError(t, err)
		reply, err := converse(c, s, m, ws[0].bufferOn)
		s.Reset(err)
		if err == nil {
			reply.Release()
		}
		n, err := double.Call(ws[0].Context(c), "worker1", 21)
		require.NoError(t, err)
		require.Equal(t, 42, n)
		require.Zero(t, logs.count("panic"), logs.String())
	})
}
