// Gpu computes a gradient on a GPU, or on the interpreter of GPUs where there is none. docs/gpu.md
// tells about it.
package main

import (
	"fmt"
	"log"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/interpreter"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/kernels/gpu"
)

func main() {
	driver, err := native.Open(0)
	if err != nil {
		log.Println("on the interpreter, ten thousand times slower:", err)
		driver = interpreter.Open()
	}
	dev, err := gpu.On(driver, device.CUDA(0)) // gpu.Config{Precision: gpu.BF16}.On: products of bfloat16
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	w := autodiff.To(autodiff.New([]float32{1, 2, 3, 4}, 2, 2), dev).RequireGrad() // nn.To moves a whole layer
	loss := autodiff.Sum(autodiff.MatMul(w, w))
	grads, err := autodiff.Backward(loss) // computed where w lies
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(loss.Item())
	fmt.Println(autodiff.Values[float32](grads.Of(w)))
}
