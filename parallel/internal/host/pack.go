package host

// Alignment is of values in a buffer: buffers are aligned so.
const Alignment = 64

// Padded is where behind so many bytes the next value may begin.
func Padded(bytes int) int { return (bytes + Alignment - 1) / Alignment * Alignment }

// Pack is parameters that lie one behind the other in one buffer.
type Pack struct {
	Params []int // which they are
	At     []int // where each begins, in bytes
	Bytes  int   // of all
}

// Add puts a parameter behind the others.
func (p *Pack) Add(param, bytes int) {
	p.Params, p.At = append(p.Params, param), append(p.At, p.Bytes)
	p.Bytes += Padded(bytes)
}

// Lead makes room for so many bytes in front of all.
func (p *Pack) Lead(bytes int) {
	p.Bytes += Padded(bytes)
	for k := range p.At {
		p.At[k] += Padded(bytes)
	}
}
