package native

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// meaning is what a result of the driver means, and what to do.
type meaning struct {
	err  error
	text string
}

const (
	reset = "the process must end and start again to use this GPU"
	newer = "install a newer NVIDIA driver (520 or later), or unset LIBCUDA_PATH"
)

// noDevice is CUDA_ERROR_NO_DEVICE.
const noDevice = 100

// meaningOf knows the results that somebody can do something about. The numbers are the driver's
// and never change.
func meaningOf(code int) meaning {
	switch code {
	case 1:
		return meaning{nil, "a value is out of range"}
	case 2:
		return meaning{device.ErrMemory, "use smaller batches, or end what else uses the GPU"}
	case 3, 4:
		return meaning{cuda.ErrNoDriver, "the driver has been shut down: the process is ending"}
	case 34:
		return meaning{cuda.ErrNoDriver, "libcuda.so.1 is the toolkit's stub: take its directory out of LD_LIBRARY_PATH and LIBCUDA_PATH"}
	case 35, 36:
		return meaning{cuda.ErrOldDriver, newer}
	case 46:
		return meaning{device.ErrNoDevice, "another process has the GPU for itself (nvidia-smi -c 0 lets several share it)"}
	case noDevice:
		return meaning{device.ErrNoDevice, "no CUDA-capable device: nvidia-smi -L lists them; CUDA_VISIBLE_DEVICES may hide them, a container must be given them (--gpus all), and with MIG on only its instances count (nvidia-smi mig -lgi)"}
	case 101:
		return meaning{device.ErrNoDevice, "CUDA_VISIBLE_DEVICES says which GPUs are shown, or which MIG instances, by their UUIDs"}
	case 200, 209, 218, 300, 500:
		return meaning{cuda.ErrImage, ""}
	case 221:
		return meaning{cuda.ErrImage, "the driver's PTX compiler is missing: install libnvidia-ptxjitcompiler.so.1 of the same version"}
	case 222:
		return meaning{cuda.ErrOldDriver, newer}
	case 304:
		return meaning{nil, "the operating system refused: between containers, sharing memory needs --ipc=host"}
	case 600:
		return meaning{nil, "it has not happened yet"}
	case 701:
		return meaning{cuda.ErrLaunch, "it needs more registers or shared memory than the GPU has for a block of this size"}
	case 802:
		return meaning{cuda.ErrNoDriver, "the system is not ready: on machines with NVSwitch, start nvidia-fabricmanager"}
	case 803:
		return meaning{cuda.ErrOldDriver, "libcuda.so.1 and the kernel's module are of different versions: reboot, or load the module again"}
	case 804:
		return meaning{cuda.ErrOldDriver, "this forward-compatibility libcuda.so.1 does not serve this GPU: use the driver's own"}
	case 805, 806, 807, 808, 809, 810:
		return meaning{cuda.ErrNoDriver, "NVIDIA's MPS does not serve this process: look at its server's log, or unset CUDA_MPS_PIPE_DIRECTORY to go without"}
	case 900, 901, 902, 903, 904, 905, 906, 907, 908:
		return meaning{nil, "this cannot be recorded in a graph, or was done from outside while one was recorded"}
	case 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 722, 999:
		return meaning{device.ErrLost, lost(code) + ": " + reset}
	}
	return meaning{}
}

func lost(code int) string {
	switch code {
	case 214:
		return "an uncorrectable memory error"
	case 220:
		return "an uncorrectable error of NVLink"
	case 226:
		return "an error of the hardware, which was contained to this process"
	case 700:
		return "a kernel read or wrote an address that is not there"
	case 702:
		return "a kernel took longer than the display's watchdog allows"
	case 710:
		return "a kernel's assertion failed"
	case 716:
		return "a kernel read or wrote a misaligned address"
	case 999:
		return "the driver does not say why; the system's log may (dmesg | grep -i xid)"
	}
	return "a kernel failed"
}

// failure is an error of the driver; text comes before what the code means. Code 0 is none.
func failure(op string, code int, text string) error {
	if code == 0 {
		return nil
	}
	m := meaningOf(code)
	if text != "" && m.text != "" {
		text += "; "
	}
	return &cuda.Error{Op: op, Code: code, Text: text + m.text, Err: m.err}
}
