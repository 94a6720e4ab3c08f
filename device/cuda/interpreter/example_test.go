package interpreter_test

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/interpreter"
)

// double doubles as many floats as the launch has threads.
const double = `.version 7.8
.target sm_75
.address_size 64
.visible .entry double(.param .u64 at)
{
	.reg .b32 %r<2>;
	.reg .f32 %f<2>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd0, [at];
	mov.u32 %r0, %tid.x;
	mul.wide.u32 %rd1, %r0, 4;
	add.s64 %rd2, %rd0, %rd1;
	ld.global.f32 %f0, [%rd2];
	add.f32 %f1, %f0, %f0;
	st.global.f32 [%rd2], %f1;
	ret;
}`

// A kernel runs on the host's processor, and what a GPU would keep to itself is told: here, a
// thread more than there are numbers.
func Example() {
	m := interpreter.Open()
	defer m.Close()
	numbers := []float32{1, 2, 3}
	run := func(threads int) error {
		at, err := m.Alloc(4 * len(numbers))
		if err != nil {
			return err
		}
		pinned, err := m.Pin(4 * len(numbers))
		if err != nil {
			return err
		}
		copy(pinned, device.Bytes(numbers))
		module, err := m.Load([]byte(double))
		if err != nil {
			return err
		}
		kernel, err := module.Func("double", 0)
		if err != nil {
			return err
		}
		stream, err := m.Stream()
		if err != nil {
			return err
		}
		var list cuda.List
		list.Add(kernel, [3]uint32{1, 1, 1}, [3]uint32{uint32(threads), 1, 1}, 0)
		list.Addr(at)
		for _, do := range []func() error{
			func() error { return stream.CopyIn(at, pinned) },
			func() error { return stream.Run(&list) },
			func() error { return stream.CopyOut(pinned, at) },
			stream.Sync,
		} {
			if err := do(); err != nil {
				return err
			}
		}
		copy(device.Bytes(numbers), pinned)
		return nil
	}
	fmt.Println(run(3), numbers)
	fmt.Println(run(4))
	// Output:
	// <nil> [2 4 6]
	// ptx launch: device is lost: kernel double, line 13: ld.global.f32 %f0, [%rd2]: block (0,0,0), thread (3,0,0): reads 4 bytes out of bounds: 0x7f000000110c is 0 bytes behind the 12 bytes at 0x7f0000001100
}
