package mux

import (
	"context"

	"github.com/weft-project/weft/transport/internal/wire"
)

// SendBytes sends on a stream, as one message, what may be none.
func SendBytes(c context.Context, s wire.Stream, b []byte) error {
	return s.(*stream).sendPieces(c, b, chunk{kind: chunkMessage})
}
