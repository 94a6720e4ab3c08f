package bulk

import (
	"bufio"

	"github.com/weft-project/weft/transport/internal/lane"
)

// WriteBlockHead writes on a stripe that a block of a transfer follows.
func WriteBlockHead(h lane.Channel, id, block uint64) error {
	s := h.(*channel).stripes[0]
	w := &writer{Writer: bufio.NewWriter(s.conn), under: s.under}
	_, _ = w.Write(head(id, block)) // flush fails, too
	return w.flush()
}
