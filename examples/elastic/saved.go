package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weft-project/weft/elastic/checkpoint"
)

// saves are this worker's parts of checkpoints that are under way beside the training, one at a
// time.
type saves struct {
	c    context.Context // of them all
	stop context.CancelFunc
	last *checkpoint.Pending
}

// wait returns when what is under way is whole, or why it is not.
func (s *saves) wait() error {
	if s.last == nil {
		return nil
	}
	return s.last.Wait()
}

// abandon gives up what is under way: who was lost will not write its part.
func (s *saves) abandon() {
	s.stop()
	_ = s.wait() // the older checkpoints are as they were
}

// saving begins to save what this worker has. It returns when that is copied.
func (e *epoch) saving(c context.Context, _ none) (none, error) {
	if err := e.saves.wait(); err != nil {
		return none{}, err
	}
	part := checkpoint.Part{Rank: e.Rank, World: e.World, Store: e.Store}
	err := e.with(c, func(s *shard) (err error) {
		part.Step = int64(s.step)
		if part.Pieces, err = s.pieces(); err == nil && e.Rank == 0 {
			var marks []byte
			marks, err = json.Marshal(s.Marks)
			part.Notes = map[string]string{"marks": string(marks)}
			part.Pieces = append(part.Pieces, checkpoint.Piece{Name: "losses", DType: "F64", Shape: []int{len(s.Losses)}, Data: littleEndian(s.Losses)})
		}
		return err
	})
	if err == nil {
		e.saves.last, err = e.saved.Start(e.saves.c, part)
	}
	return none{}, err
}

// readHistory is the history that a checkpoint holds.
func readHistory(from *checkpoint.Checkpoint) (h history, err error) {
	x, err := from.Read("losses")
	if err == nil {
		h.Losses, err = numbers[float64](x.Data)
	}
	return h, errors.Join(err, json.Unmarshal([]byte(from.Notes["marks"]), &h.Marks))
}

type number interface{ float32 | float64 }

func littleEndian[T number](v []T) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, v) // it is written to memory
	return b.Bytes()
}

func numbers[T number](raw []byte) ([]T, error) {
	v := make([]T, len(raw)/binary.Size(T(0)))
	if _, err := binary.Decode(raw, binary.LittleEndian, v); err != nil {
		return nil, fmt.Errorf("%d bytes of a checkpoint: %w", len(raw), err)
	}
	return v, nil
}
