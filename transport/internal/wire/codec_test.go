package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

func codec(t testing.TB, l wire.Limits) *wire.Codec {
	c, err := wire.NewCodec(l)
	require.NoError(t, err)
	return c
}

// randomMessage makes a message with 0 to 9 tensors of all types, some absent, some empty.
func randomMessage(t testing.TB, r *rand.Rand) *wire.Message {
	m := &wire.Message{Kind: uint8(r.Uint32()), Header: make([]byte, r.IntN(300))}
	for i := range m.Header {
		m.Header[i] = byte(r.Uint32())
	}
	for range r.IntN(10) {
		if r.IntN(6) == 0 {
			m.Tensors = append(m.Tensors, wire.Tensor{})
			continue
		}
		shape := make([]int, r.IntN(4))
		for i := range shape {
			shape[i] = r.IntN(12)
		}
		x := transporttest.Tensor(t, r, device.Host(), device.Dtype(1+r.IntN(4)), shape...)
		if r.IntN(3) == 0 {
			x.Device = device.CUDA(r.IntN(8))
		}
		m.Tensors = append(m.Tensors, x)
	}
	return m
}

// plainFrame is the frame format once more, written as plainly as its description.
func plainFrame(t testing.TB, m *wire.Message) []byte {
	le := binary.LittleEndian
	var table, payload []byte
	for _, x := range m.Tensors {
		table = append(table, byte(x.Dtype), byte(len(x.Shape)), byte(x.Device.Kind), 0)
		table = le.AppendUint32(table, uint32(x.Device.Index))
		for _, d := range x.Shape {
			table = le.AppendUint64(table, uint64(d))
		}
		if x.Buf != nil {
			payload = append(payload, transporttest.Contents(t, x)...)
		}
	}
	f := []byte{m.Kind, 0}
	f = le.AppendUint16(f, uint16(len(m.Tensors)))
	f = le.AppendUint32(f, uint32(len(m.Header)))
	f = le.AppendUint64(f, uint64(len(payload)))
	return append(append(append(f, m.Header...), table...), payload...)
}

func TestFramesAreAsDescribedAndComeBackAsTheyWere(t *testing.T) {
	leak.Check(t)
	r := rand.New(rand.NewPCG(3, 4))
	c := codec(t, wire.Limits{})
	for range 500 {
		m := randomMessage(t, r)
		var b bytes.Buffer
		require.NoError(t, c.Encode(&b, m))
		require.Equal(t, plainFrame(t, m), b.Bytes())
		got, err := c.Decode(iotest.HalfReader(&b), nil)
		require.NoError(t, err)
		require.Equal(t, m.Kind, got.Kind)
		require.Equal(t, m.Header, got.Header)
		transporttest.Same(t, m.Tensors, got.Tensors)
		require.Zero(t, b.Len())
		m.Release()
		got.Release()
	}
}

func TestASmallFrameIsOneWriteAndALargeTensorIsWrittenWhereItLies(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	small := transporttest.Tensor(t, r, device.Host(), device.Float32, 3, 3)
	large := transporttest.Tensor(t, r, device.Host(), device.Float32, 1<<18)
	var w writes
	c := codec(t, wire.Limits{})
	require.NoError(t, c.Encode(&w, &wire.Message{Header: []byte("h"), Tensors: []wire.Tensor{small, small}}))
	require.Len(t, w, 1)
	w = nil
	m := &wire.Message{Tensors: []wire.Tensor{small, large, small}}
	require.NoError(t, c.Encode(&w, m))
	require.Len(t, w, 3)
	mem, err := large.Buf.Host()
	require.NoError(t, err)
	require.Same(t, &mem[0], &w[1][0])
	require.NoError(t, small.Buf.Release())
	require.NoError(t, large.Buf.Release())
}

// writes keeps the slices it was given, not copies.
type writes [][]byte

func (w *writes) Write(b []byte) (int, error) { *w = append(*w, b); return len(b), nil }

func TestEveryTruncationIsAFrameErrorAndHoldsNothing(t *testing.T) {
	leak.Check(t)
	m := &wire.Message{Header: []byte("head"), Tensors: []wire.Tensor{
		transporttest.Tensor(t, rand.New(rand.NewPCG(1, 1)), device.Host(), device.Float32, 2, 2),
		transporttest.Tensor(t, rand.New(rand.NewPCG(1, 2)), device.Host(), device.Int64, 3),
	}}
	defer m.Release()
	whole := plainFrame(t, m)
	c := codec(t, wire.Limits{})
	for n := range whole {
		_, err := c.Decode(bytes.NewReader(whole[:n]), nil)
		if n == 0 {
			require.Equal(t, io.EOF, err)
			continue
		}
		require.ErrorIs(t, err, wire.ErrFrame, "%d of %d bytes", n, len(whole))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
	broken := errors.New("the link broke")
	_, err := c.Decode(io.MultiReader(bytes.NewReader(whole[:len(whole)-1]), iotest.ErrReader(broken)), nil)
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, wire.ErrFrame, "it is not the peer's fault")
}

// claim puts a frame together from what it claims.
func claim(tensors uint16, header uint32, payload uint64, rest ...byte) []byte {
	f := []byte{1, 0}
	f = binary.LittleEndian.AppendUint16(f, tensors)
	f = binary.LittleEndian.AppendUint32(f, header)
	f = binary.LittleEndian.AppendUint64(f, payload)
	return append(f, rest...)
}

func entry(dtype, kind byte, index uint32, extents ...uint64) []byte {
	e := binary.LittleEndian.AppendUint32([]byte{dtype, byte(len(extents)), kind, 0}, index)
	for _, d := range extents {
		e = binary.LittleEndian.AppendUint64(e, d)
	}
	return e
}

func TestClaimsThatBreakTheRulesAreNamed(t *testing.T) {
	c := codec(t, wire.Limits{MaxHeader: 100, MaxTensors: 3, MaxTensorBytes: 1000, MaxMessageBytes: 1500})
	none := func(device.ID, int) (*device.Buffer, error) { panic("a buffer was asked for") }
	f32, cpu := byte(device.Float32), byte(device.KindCPU)
	for name, test := range map[string]struct {
		frame []byte
		says  string
	}{
		"a reserved byte":          {append([]byte{1, 9}, make([]byte, 14)...), "fixed part: expected known flags, found 0x9"},
		"a long header":            {claim(0, 101, 0), "header: expected at most 100 bytes (Limits.MaxHeader), found 101"},
		"the longest header":       {claim(0, math.MaxUint32, 0), "found 4294967295"},
		"many tensors":             {claim(4, 0, 0), "table: expected at most 3 tensors (Limits.MaxTensors), found 4"},
		"a large payload":          {claim(1, 0, 1501), "payload: expected at most 1500 bytes (Limits.MaxMessageBytes), found 1501"},
		"a payload beyond int64":   {claim(1, 0, math.MaxUint64), "found 18446744073709551615"},
		"a payload of no tensor":   {claim(0, 0, 5), "payload: expected 0 bytes, as the table says, found 5"},
		"an unknown dtype":         {claim(1, 0, 4, entry(99, cpu, 0)...), "tensor 0: expected a known dtype, found dtype(99)"},
		"an unknown device kind":   {claim(1, 0, 4, entry(f32, 9, 0)...), "found kind(9):0"},
		"a second cpu":             {claim(1, 0, 4, entry(f32, cpu, 1)...), "index 1"},
		"a device out of range":    {claim(1, 0, 4, entry(f32, byte(device.KindCUDA), 1<<16)...), "index below 65536"},
		"too many axes":            {claim(1, 0, 4, entry(f32, cpu, 0, make([]uint64, 17)...)...), "found 17 axes"},
		"an extent beyond int":     {claim(1, 0, 4, entry(f32, cpu, 0, math.MaxUint64)...), "extents below"},
		"a product that wraps":     {claim(1, 0, 4, entry(f32, cpu, 0, 1<<32, 1<<32)...), "too many elements"},
		"a wrap hidden by a zero":  {claim(1, 0, 0, entry(f32, cpu, 0, 0, 1<<62, 8)...), "too many elements"},
		"a tensor beyond its size": {claim(1, 0, 1004, entry(f32, cpu, 0, 251)...), "at most 1000 bytes"},
		"a table beyond payload":   {claim(1, 0, 4, entry(f32, cpu, 0, 2)...), "at least 8 bytes for tensors 0 to 0, found 4"},
		"a table below payload":    {claim(1, 0, 12, entry(f32, cpu, 0, 2)...), "expected 8 bytes, as the table says, found 12"},
		"an absent tensor's shape": {claim(1, 0, 0, entry(0, cpu, 0, 2)...), "no shape for an absent tensor"},
	} {
		_, err := c.Decode(bytes.NewReader(append(test.frame, make([]byte, 2000)...)), none)
		var fe *wire.FrameError
		require.ErrorAs(t, err, &fe, name)
		require.ErrorIs(t, err, wire.ErrFrame, name)
		require.ErrorContains(t, err, test.says, name)
	}
}

func TestAMessageThatBreaksTheRulesIsNotWritten(t *testing.T) {
	c := codec(t, wire.Limits{MaxHeader: 10, MaxTensors: 2, MaxTensorBytes: 100, MaxMessageBytes: 150})
	x := transporttest.Tensor(t, rand.New(rand.NewPCG(1, 1)), device.Host(), device.Float32, 20)
	big := transporttest.Tensor(t, rand.New(rand.NewPCG(1, 1)), device.Host(), device.Float32, 26)
	wrong, alien, shapeless := x, x, x
	wrong.Shape = device.Shape{21}
	alien.Device = device.ID{Kind: 77}
	shapeless.Dtype, shapeless.Shape = device.Invalid, nil
	for name, m := range map[string]*wire.Message{
		"a long header":       {Header: make([]byte, 11)},
		"many tensors":        {Tensors: make([]wire.Tensor, 3)},
		"a large tensor":      {Tensors: []wire.Tensor{big}},
		"large together":      {Tensors: []wire.Tensor{x, x}},
		"a buffer that lacks": {Tensors: []wire.Tensor{{Dtype: device.Float32}}},
		"a wrong length":      {Tensors: []wire.Tensor{x, wrong}},
		"an unknown device":   {Tensors: []wire.Tensor{alien}},
		"an absent buffer":    {Tensors: []wire.Tensor{shapeless}},
	} {
		var b bytes.Buffer
		require.ErrorIs(t, c.Encode(&b, m), wire.ErrFrame, name)
		require.Zero(t, b.Len(), name)
	}
	require.NoError(t, x.Buf.Release())
	require.NoError(t, big.Buf.Release())
	var b bytes.Buffer
	require.ErrorIs(t, c.Encode(&b, &wire.Message{Tensors: []wire.Tensor{x}}), device.ErrReleased)
	require.Zero(t, b.Len())
}

func TestAHeaderIsGivenMemoryAsItArrives(t *testing.T) {
	c := codec(t, wire.Limits{MaxHeader: 1 << 30})
	frame := append(claim(0, 1<<30, 0), make([]byte, 1000)...)
	got := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = c.Decode(bytes.NewReader(frame), nil)
		}
	})
	require.Less(t, got.AllocedBytesPerOp(), int64(100<<10))
	header := make([]byte, 300_000) // grows several times
	for i := range header {
		header[i] = byte(i * 7)
	}
	m, err := c.Decode(iotest.OneByteReader(bytes.NewReader(append(claim(0, uint32(len(header)), 0), header...))), nil)
	require.NoError(t, err)
	require.True(t, bytes.Equal(header, m.Header))
}

func TestABufferOfTheWrongLengthIsRefusedAndReleased(t *testing.T) {
	leak.Check(t)
	frame := claim(1, 0, 4, append(entry(byte(device.Float32), 0, 0), 1, 2, 3, 4)...)
	c := codec(t, wire.Limits{})
	_, err := c.Decode(bytes.NewReader(frame), func(device.ID, int) (*device.Buffer, error) { return device.Host().Alloc(5) })
	require.ErrorIs(t, err, device.ErrBounds)
	_, err = c.Decode(bytes.NewReader(frame), func(device.ID, int) (*device.Buffer, error) { return nil, nil })
	require.ErrorIs(t, err, device.ErrBounds)
}

func TestLimitsOutOfRangeAreAllReported(t *testing.T) {
	_, err := wire.NewCodec(wire.Limits{MaxHeader: -1, MaxTensors: 1 << 16, MaxTensorBytes: -1, MaxMessageBytes: math.MaxInt64})
	for _, field := range []string{"MaxHeader", "MaxTensors", "MaxTensorBytes", "MaxMessageBytes"} {
		require.ErrorContains(t, err, field)
	}
}
