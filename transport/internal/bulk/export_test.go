package bulk

import "github.com/weft-project/weft/transport/internal/lane"

// WriteBlockHead writes on a stripe that a block of a transfer follows.
func WriteBlockHead(h lane.Channel, id, block uint64) error {
	_, err := h.(*channel).stripes[0].conn.Write(head(id, block))
	return err
}
