package bulk

import (
	"runtime"
	"time"

	"github.com/weft-project/weft/transport/internal/lane"
)

const (
	courtesyTurn   = 500 * time.Microsecond
	courtesyRecent = 3 * time.Millisecond
)

// courtesy lets others run between two blocks, for one goroutine of a stripe. A stripe that never
// has to wait keeps a processor busy, and the system lets it, for several milliseconds at a time: a
// small call would wait for so long at each end. So while frames come and go on the link the stripe
// gives its turn away at every courtesyTurn; not else, because it costs speed.
type courtesy struct {
	frames  *lane.Traffic // of the link's frames; nil: nobody is known to wait
	seen    uint64        // bytes of frames
	changed time.Time     // when there were more
	gave    time.Time     // when the last turn was given away
}

func (k *courtesy) pause() {
	runtime.Gosched()
	if k.due(time.Now()) {
		yieldProcessor()
	}
}

// due says whether to give a turn away now.
func (k *courtesy) due(now time.Time) bool {
	if k.frames == nil {
		return false
	}
	if n := k.frames.Sent.Load() + k.frames.Received.Load(); n != k.seen {
		k.seen, k.changed = n, now
	}
	if now.Sub(k.changed) > courtesyRecent || now.Sub(k.gave) < courtesyTurn {
		return false
	}
	k.gave = now
	return true
}
