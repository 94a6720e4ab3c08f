package cudatest

import (
	"errors"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

func images(r *rig) {
	for _, text := range []string{"", "this is no PTX", ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry k() { wiggle.b32; }"} {
		_, err := r.d.Load([]byte(text))
		require.ErrorIs(r, err, cuda.ErrImage, text)
	}
	_, err := r.mod.Func("weft_nothing", 0)
	require.ErrorIs(r, err, cuda.ErrImage)
	_, err = r.mod.Func("weft_sum", 1<<30)
	require.ErrorIs(r, err, cuda.ErrLaunch, "no block has so much shared memory")
	again, err := r.d.Load(kernels)
	require.NoError(r, err)
	require.NoError(r, again.Unload())
	r.fn("weft_fill", 0) // of the other module
}

func arguments(r *rig) {
	const n = 1000
	a, b, out := r.alloc(4*n), r.alloc(4*n), r.alloc(4*n)
	var l cuda.List
	r.fill(&l, a, 5, n)
	r.fill(&l, b, 1<<31, n)
	r.fill(&l, out, 1, n)
	r.mix(&l, a, b, out, n-1)
	require.NoError(r, r.s.Run(&l))
	want := repeated(1<<31+15, n)
	want[n-1] = 1
	require.Equal(r, want, r.down(out, n))
}

func sharedMemory(r *rig) {
	in := make([]uint32, 1024)
	var want [4]uint32
	for k := range in {
		in[k] = uint32(k * k)
		want[k/256] += in[k]
	}
	a, out := r.up(in...), r.up(0, 0, 0, 0)
	var l cuda.List
	l.Add(r.fn("weft_sum", 1024), one(4), one(256), 1024)
	l.Addr(a)
	l.Addr(out)
	require.NoError(r, r.s.Run(&l))
	require.Equal(r, want[:], r.down(out, 4))

	l.Launches[0].Func = r.fn("weft_sum", 64<<10) // more than a kernel has without being asked
	l.Launches[0].Shared = 64 << 10
	require.NoError(r, r.s.Run(&l))
	require.Equal(r, want[:], r.down(out, 4))
}

func refused(r *rig) {
	at := r.up(1, 2, 3, 4)
	for name, spoil := range map[string]func(*cuda.Launch){
		"too many threads":       func(l *cuda.Launch) { l.Block = [3]uint32{2048, 1, 1} },
		"no threads":             func(l *cuda.Launch) { l.Block = [3]uint32{} },
		"no blocks":              func(l *cuda.Launch) { l.Grid[1] = 0 },
		"too much shared memory": func(l *cuda.Launch) { l.Shared = 1 << 20 },
		"arguments elsewhere":    func(l *cuda.Launch) { l.Off = 1 << 20 },
		"no function":            func(l *cuda.Launch) { l.Func = nil },
	} {
		var l cuda.List
		r.fill(&l, at, 9, 4)
		r.fill(&l, at, 8, 4)
		spoil(&l.Launches[1])
		require.ErrorIs(r, r.s.Run(&l), cuda.ErrLaunch, name)
		require.Equal(r, []uint32{1, 2, 3, 4}, r.down(at, 4), name)
	}
	require.NoError(r, r.s.Run(&cuda.List{}), "nothing to do")
}

func lists(r *rig) {
	a, b := r.up(0, 0), r.up(0, 0)
	var l cuda.List
	r.fill(&l, a, 3, 2)
	require.NoError(r, r.s.Run(&l))
	l.Reset()
	r.fill(&l, b, 4, 2)
	require.NoError(r, r.s.Run(&l))
	clear(l.Args)
	clear(l.Launches)
	require.Equal(r, []uint32{3, 3}, r.down(a, 2))
	require.Equal(r, []uint32{4, 4}, r.down(b, 2))
}

func order(r *rig) {
	const n = 64
	a, out := r.up(repeated(1, n)...), r.alloc(4*n)
	want := uint32(1)
	for range 20 {
		var l cuda.List
		r.mix(&l, a, a, out, n)
		r.mix(&l, out, a, a, n)
		require.NoError(r, r.s.Run(&l))
		want = 13 * want
		require.NoError(r, r.s.Zero(out, 4*n))
		require.NoError(r, r.s.Copy(out, a, 4*n))
	}
	require.Equal(r, repeated(want, n), r.down(out, n))
}

func waits(r *rig) {
	const n = 256
	other, ready, taken := r.stream(), r.event(), r.event()
	a, b := r.alloc(4*n), r.alloc(4*n)
	var l cuda.List
	for k := range 10 {
		l.Reset()
		r.fill(&l, a, k, n)
		require.NoError(r, r.s.Wait(taken))
		require.NoError(r, r.s.Run(&l))
		require.NoError(r, r.s.Record(ready))
		require.NoError(r, other.Wait(ready))
		require.NoError(r, other.Copy(b, a, 4*n))
		require.NoError(r, other.Record(taken))
	}
	require.NoError(r, taken.Sync())
	require.Equal(r, repeated(9, n), r.down(b, n))
	require.NoError(r, other.Sync())
	require.NoError(r, other.Close())
	require.NoError(r, ready.Close())
	require.NoError(r, taken.Close())
}

func unrecorded(r *rig) {
	e := r.event()
	require.NoError(r, r.s.Wait(e))
	require.NoError(r, e.Sync())
	require.NoError(r, r.s.Sync())
}

func times(r *rig) {
	from, to := r.timer(), r.timer()
	a := r.alloc(1 << 20)
	require.NoError(r, r.s.Record(from))
	for range 4 {
		require.NoError(r, r.s.Zero(a, 1<<20))
	}
	require.NoError(r, r.s.Record(to))
	require.NoError(r, to.Sync())
	ms, err := to.Since(from)
	require.NoError(r, err)
	require.GreaterOrEqual(r, ms, 0.0)
	_, err = r.timer().Since(from)
	require.Error(r, err, "it has not happened")
}

func capture(r *rig) {
	const n = 100
	a, b, pin := r.up(repeated(1, n)...), r.alloc(4*n), r.pin(4)
	var l cuda.List
	g, err := r.s.Capture(func() error {
		r.mix(&l, a, a, b, n)
		if err := r.s.Run(&l); err != nil {
			return err
		}
		l.Reset()
		r.fill(&l, b, 77, 1)
		return errors.Join(r.s.Run(&l), r.s.Copy(a, b, 4*n), r.s.Zero(b, 4*n), r.s.CopyOut(pin, a+4))
	})
	require.NoError(r, err)
	l.Reset()
	clear(l.Args)
	require.Equal(r, repeated(1, n), r.down(a, n), "nothing was done yet")
	want := repeated(1, n)
	for range 3 {
		require.NoError(r, r.s.Replay(g))
		for k := range want {
			want[k] *= 4
		}
		want[0] = 77
		require.Equal(r, want, r.down(a, n))
		require.Equal(r, byte(want[1]), pin[0])
	}
	require.NoError(r, g.Close())
	require.NoError(r, r.d.Unpin(pin))
}

func captureFails(r *rig) {
	wrong := errors.New("changed my mind")
	a := r.up(1, 2)
	var l cuda.List
	r.fill(&l, a, 5, 2)
	_, err := r.s.Capture(func() error { return errors.Join(r.s.Run(&l), wrong) })
	require.ErrorIs(r, err, wrong)
	require.Equal(r, []uint32{1, 2}, r.down(a, 2))
	require.NoError(r, r.s.Run(&l))
	require.Equal(r, []uint32{5, 5}, r.down(a, 2))
}

func captureSync(r *rig) {
	_, err := r.s.Capture(func() error {
		require.Error(r, r.s.Sync())
		_, err := r.s.Capture(func() error { return nil })
		require.Error(r, err, "one at a time")
		return errors.New("enough")
	})
	require.Error(r, err)
	require.NoError(r, r.s.Sync())
}

func concurrent(r *rig) {
	f := r.fn("weft_fill", 0)
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			errs := func() error {
				s, err := r.d.Stream()
				if err != nil {
					return err
				}
				for j := range 20 {
					at, err := r.d.Alloc(400)
					if err != nil {
						return err
					}
					var l cuda.List
					l.Add(f, one(4), one(32), 0)
					l.Addr(at)
					l.U32(uint32(k*100 + j))
					l.U32(100)
					pin, err := r.d.Pin(400)
					if err = errors.Join(err, s.Run(&l), s.CopyOut(pin, at), s.Sync()); err != nil {
						return err
					}
					if v := int(pin[396]) | int(pin[397])<<8; v != k*100+j {
						return errors.New("another goroutine's bytes")
					}
					if err = errors.Join(r.d.Unpin(pin), r.d.Free(at)); err != nil {
						return err
					}
				}
				return s.Close()
			}()
			if errs != nil {
				r.Error(errs)
			}
		})
	}
	wg.Wait()
}

func closed(r *rig) {
	require.NoError(r, r.d.Close())
	_, err := r.d.Alloc(1)
	require.Error(r, err)
	_, err = r.d.Stream()
	require.Error(r, err)
	require.Error(r, r.s.Zero(0, 0))
	require.Error(r, r.s.Sync())
}

func faults(r *rig) {
	at := r.up(1, 2)
	var l cuda.List
	l.Add(r.fn("weft_wild", 0), one(1), one(32), 0)
	l.U32(1)
	err := r.s.Run(&l)
	if err == nil {
		err = r.s.Sync()
	}
	require.ErrorIs(r, err, device.ErrLost)
	require.ErrorIs(r, r.s.Sync(), device.ErrLost)
	_, err = r.d.Alloc(1)
	require.ErrorIs(r, err, device.ErrLost)
	_ = r.d.Free(at)
	_ = r.s.Close()
}
