package syntax

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// body reads statements up to the brace that closes the function.
func (p *parser) body() ([]Statement, error) {
	out := p.statements[:0]
	defer func() { p.statements = out }()
	depth := 1
	for {
		t := p.tok
		switch {
		case t.kind == tokenEnd:
			return nil, fmt.Errorf("line %d: a function without an end", t.line)
		case t.is("{"):
			p.next()
			if depth++; depth > maxDepth {
				return nil, fmt.Errorf("line %d: too deep", t.line)
			}
			out = append(out, Statement{Kind: StmtOpen, Line: t.line})
		case t.is("}"):
			p.next()
			if depth--; depth == 0 {
				return slices.Clone(out), nil
			}
			out = append(out, Statement{Kind: StmtClose, Line: t.line})
		case t.is(";"):
			p.next()
		case t.text == ".loc" || t.text == ".file":
			p.skipLine()
		case t.text == ".pragma" || t.text == ".callprototype" || t.text == ".branchtargets":
			p.skipTo(";")
		case t.text == ".reg":
			regs, err := p.registers()
			if err != nil {
				return nil, err
			}
			out = append(out, Statement{Kind: StmtRegs, Line: t.line, Regs: regs})
		case t.kind == tokenName && t.text[0] == '.':
			vs, err := p.variables(false)
			if err != nil {
				return nil, err
			}
			for _, v := range vs {
				out = append(out, Statement{Kind: StmtVar, Line: t.line, Var: v})
			}
		case t.kind == tokenName && p.ahead.is(":"):
			p.next()
			p.next()
			out = append(out, Statement{Kind: StmtLabel, Line: t.line, Name: t.text})
		default:
			s, err := p.instruction()
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		}
	}
}

// registers reads .reg .type %a<n>, %b;
func (p *parser) registers() ([]Registers, error) {
	p.next()
	t := p.next()
	kind, ok := typeOf(strings.TrimPrefix(t.text, "."))
	if !ok {
		return nil, fmt.Errorf("line %d: registers of type %q", t.line, t.text)
	}
	var out []Registers
	for {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		d := Registers{Name: name, Typ: kind}
		if p.accept("<") {
			if d.Count, err = p.number(1 << 20); err != nil {
				return nil, err
			}
			if err := p.expect(">"); err != nil {
				return nil, err
			}
		}
		out = append(out, d)
		if !p.accept(",") {
			return out, p.expect(";")
		}
	}
}

// instruction reads @p op a, b, c;
func (p *parser) instruction() (Statement, error) {
	first := p.tok
	s := Statement{Kind: StmtInstr, Line: first.line}
	var err error
	if p.accept("@") {
		s.Negate = p.accept("!")
		if s.Pred, err = p.name(); err != nil {
			return s, err
		}
	}
	op, err := p.name()
	if err != nil {
		return s, err
	}
	if s.Op = p.opcodes[op]; s.Op == nil {
		s.Op = strings.Split(op, ".")
		p.opcodes[op] = s.Op
	}
	if cap(p.args)-len(p.args) < 8 {
		p.args = make([]Operand, 0, 512)
	}
	from := len(p.args)
	for !p.tok.is(";") {
		if len(p.args) > from {
			if err := p.expect(","); err != nil {
				return s, err
			}
		}
		o, err := p.operand(0)
		if err != nil {
			return s, err
		}
		p.args = append(p.args, o)
	}
	s.Args, s.Text = slices.Clip(p.args[from:]), p.src[first.at:p.next().at]
	return s, nil
}

func (p *parser) operand(depth int) (Operand, error) {
	t := p.tok
	if depth > 3 {
		return Operand{}, fmt.Errorf("line %d: operands too deep", t.line)
	}
	switch {
	case t.is("["):
		p.next()
		return p.address()
	case t.is("{"), t.is("("):
		p.next()
		o, end := Operand{Kind: OperandVec}, "}"
		if t.text == "(" {
			o.Kind, end = OperandList, ")"
		}
		for !p.accept(end) {
			if len(o.List) > 0 {
				if err := p.expect(","); err != nil {
					return o, err
				}
			}
			e, err := p.operand(depth + 1)
			if err != nil {
				return o, err
			}
			o.List = append(o.List, e)
		}
		return o, nil
	case t.is("!"):
		p.next()
		name, err := p.name()
		return Operand{Name: name, Not: true}, err
	case t.kind == tokenNumber || t.is("-") || t.is("+"):
		return p.immediate()
	}
	name, err := p.name()
	if err != nil {
		return Operand{}, err
	}
	o := Operand{Name: name}
	if p.accept("|") {
		o.Second, err = p.name()
	} else {
		o.Off, err = p.offset()
	}
	return o, err
}

// address reads name+off], number] or name, {a, b, …}].
func (p *parser) address() (Operand, error) {
	o := Operand{Kind: OperandAddr}
	var err error
	if p.tok.kind == tokenName {
		if o.Name, err = p.name(); err != nil {
			return o, err
		}
		if o.Off, err = p.offset(); err != nil {
			return o, err
		}
	} else {
		imm, err := p.immediate()
		if err != nil {
			return o, err
		}
		o.Off = int64(imm.Imm)
	}
	if p.accept(",") { // a place in what the address names
		line := p.tok.line
		at, err := p.operand(1)
		if err != nil {
			return o, err
		}
		if at.Kind != OperandVec || len(at.List) == 0 {
			return o, fmt.Errorf("line %d: expected the coordinates of a place in braces", line)
		}
		o.List = at.List
	}
	return o, p.expect("]")
}

// offset reads +n, +-n or -n, if there is one.
func (p *parser) offset() (int64, error) {
	if !p.tok.is("+") && !p.tok.is("-") {
		return 0, nil
	}
	imm, err := p.immediate()
	if err == nil && imm.float != 0 {
		err = fmt.Errorf("line %d: a distance must be a whole number", p.tok.line)
	}
	return int64(imm.Imm), err
}

// immediate reads a number with its sign.
func (p *parser) immediate() (Operand, error) {
	minus := false
	for k := 0; k < 2; k++ { // +-8
		if p.accept("-") {
			minus = !minus
		} else {
			p.accept("+")
		}
	}
	t := p.next()
	bad := func() error { return fmt.Errorf("line %d: expected a number, found %q", t.line, t.text) }
	if t.kind != tokenNumber {
		return Operand{}, bad()
	}
	o := Operand{Kind: OperandImm}
	s := t.text
	var err error
	switch {
	case len(s) == 10 && (s[:2] == "0f" || s[:2] == "0F"):
		o.float = 4
		o.Imm, err = strconv.ParseUint(s[2:], 16, 32)
		if minus {
			o.Imm ^= 1 << 31
		}
	case len(s) == 18 && (s[:2] == "0d" || s[:2] == "0D"):
		o.float = 8
		o.Imm, err = strconv.ParseUint(s[2:], 16, 64)
		if minus {
			o.Imm ^= 1 << 63
		}
	case strings.Contains(s, "."):
		var f float64
		f, err = strconv.ParseFloat(s, 64)
		o.float = 8
		if minus {
			f = -f
		}
		o.Imm = math.Float64bits(f)
	default:
		o.Imm, err = strconv.ParseUint(strings.TrimRight(s, "U"), 0, 64)
		if minus {
			o.Imm = -o.Imm
		}
	}
	if err != nil {
		return o, bad()
	}
	return o, nil
}

// As gives the bits of an immediate as a value of a type.
func (o Operand) As(t Type) uint64 {
	switch {
	case o.float == 4 && t.Float() && t.Size == 8:
		return math.Float64bits(float64(math.Float32frombits(uint32(o.Imm))))
	case o.float == 8 && t.Float() && t.Size == 4 && !t.Pair:
		return uint64(math.Float32bits(float32(math.Float64frombits(o.Imm))))
	}
	return o.Imm
}
