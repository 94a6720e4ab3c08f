package wire

// Bounds that tests measure.
const (
	ReadAhead = readAhead
	Promise   = promise
	MaxTold   = maxTold
)
