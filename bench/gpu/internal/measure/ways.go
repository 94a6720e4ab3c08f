package measure

import (
	"strings"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu"
)

// counted is on for a part of a case that multiplies or records graphs: a line says by what that
// was done, and why not by anything better.
func (b *bench) counted(name string, p gpu.Precision, run func(dev *device.Accelerator, t *clock) error) error {
	return b.on(p, func(dev *device.Accelerator, t *clock) error {
		defer func() { b.sayWays(name, backend.Ways(dev)) }()
		return run(dev, t)
	})
}

// sayWays says how a GPU worked: how often, by the way, as figures of a line.
func (b *bench) sayWays(name string, ways []kernels.Way) {
	if len(ways) == 0 {
		return
	}
	l := map[string]any{"case": "ways", "op": name, "peer": "weft " + b.commit}
	for _, w := range ways {
		l[wayText(w)] = w.Times
	}
	_ = b.out.Encode(l) // numbers and texts
}

// wayText is a way in words: "product by kernels, as the library lacks it (cuBLASLt says not
// supported)".
func wayText(w kernels.Way) string {
	text := w.Work + " by " + w.By
	if w.Why != "" {
		text += ", as " + w.Why
	}
	if said := w.Last; said != "" {
		const most = 160 // of a list of all places where there was no library, for one
		if len(said) > most {
			said = strings.ToValidUTF8(said[:most], "") + " …"
		}
		text += " (" + said + ")"
	}
	return text
}
