package zero

// Itself is what a user writes for 0 where the zero value stands for a default. It is negative, and
// the smallest number but 0, so no setting can mean it by chance.
const Itself = -0x1p-1074

// Or is the setting v, or its default where v was left out.
func Or(v, otherwise float64) float64 {
	switch v {
	case 0:
		return otherwise
	case Itself:
		return 0
	}
	return v
}
