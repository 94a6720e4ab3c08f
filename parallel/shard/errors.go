package shard

import "errors"

// What can go wrong with shards, beside what package parallel names.
var (
	// ErrAway: the value of a parameter was read outside of its layer.
	ErrAway = errors.New("the parameter is spread over ranks, and whole only inside its layer")
	// ErrLayer: there is no such layer.
	ErrLayer = errors.New("no such layer")
	// ErrOutside: gradients came outside of a backward of the shards, or twice in one.
	ErrOutside = errors.New("gradients of shards come once in each backward of theirs")
	// ErrCheckpoint: a checkpoint is of another model, or of none that was sharded.
	ErrCheckpoint = errors.New("not a checkpoint of this model")
)
