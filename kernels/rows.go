package kernels

import (
	"fmt"
	"slices"
)

// OnRows is an update of some rows of tables, the others left as they are: (t₀ [v, d…], g [n, d…],
// t₁ [v, d…] …, ids [n]) → t₀, t₁ … For each k in turn, row ids[k] of every table becomes what Of,
// a [Binary] or an [Update], makes of those rows and of row k of g; so a row whose id occurs twice
// is updated twice. The results may be written over their tables, and then only those rows are
// touched. An id out of [0, v) is an [IndexError] of Run, before anything is written. The count of
// an Update that has one comes before the ids, and counts this as one step.
type OnRows struct {
	Of  Instr
	Sum bool // of an Update: rows of g of one id are added up first, in their order and in float64, and make one step
}

func (i OnRows) String() string {
	if i.Sum {
		return fmt.Sprintf("OnRows(%v, of sums)", i.Of)
	}
	return fmt.Sprintf("OnRows(%v)", i.Of)
}

// Infer takes the operands of Of, the second of n rows and the others of v, and ids, int32 or
// int64.
func (i OnRows) Infer(in []Type) ([]Type, error) {
	switch i.Of.(type) {
	case Update:
	case Binary:
		if i.Sum {
			return nil, refuse(i, in, "%v is no step, and takes no sums", i.Of)
		}
	default:
		return nil, refuse(i, in, "%v is no update of a row", i.Of)
	}
	if err := expect(i, in, max(len(in), 3)); err != nil {
		return nil, err
	}
	last := len(in) - 1
	if ids := in[last]; !isIndex(ids.Dtype) || len(ids.Shape) != 1 {
		return nil, refuse(i, in, "ids must be int32 or int64, with one axis")
	}
	tables := i.Tables(in)
	for k, t := range tables {
		rows := in[0]
		if k == 1 {
			rows = in[last]
		}
		if len(t.Shape) == 0 || len(in[0].Shape) == 0 || t.Shape[0] != rows.Shape[0] || !t.Shape[1:].Equal(in[0].Shape[1:]) {
			return nil, refuse(i, in, "operand %d has not the rows that it needs", k)
		}
	}
	of, err := i.Of.Infer(append(RowTypes(tables), in[len(tables):last]...))
	if err != nil {
		return nil, refuse(i, in, "%v", err)
	}
	if len(of) != last-1 {
		return nil, refuse(i, in, "%v has %d results", i.Of, len(of))
	}
	out := make([]Type, len(of))
	for k := range of {
		out[k] = in[Replaced(k)]
	}
	return out, nil
}

// Tables are those of the operands that have rows; a count and the ids follow.
func (i OnRows) Tables(in []Type) []Type {
	n := len(in) - 1
	if u, ok := i.Of.(Update); ok && u.Missed {
		n--
	}
	return in[:max(n, 0)]
}

func (i OnRows) flops(in, out []Type) int { return 4 * len(out) * elems(in, 1) }

func (i OnRows) overwrites(in, out []Type, result, operand int) bool {
	return operand == Replaced(result) && in[operand].Equal(out[result])
}

// Replaced is the operand that result k of an [Update], or of one of rows, replaces: each but the
// second, which is the gradient.
func Replaced(k int) int {
	if k == 0 {
		return 0
	}
	return k + 1
}

// RowTypes are the types of one row of each.
func RowTypes(in []Type) []Type {
	rows := slices.Clone(in)
	for k := range rows {
		rows[k].Shape = rows[k].Shape[1:]
	}
	return rows
}
