package ptx

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// body reads statements up to the brace that closes the function.
func (p *parser) body() ([]stmt, error) {
	var out []stmt
	depth := 1
	for {
		t := p.peek()
		switch {
		case t.kind == tokenEnd:
			return nil, fmt.Errorf("line %d: a function without an end", t.line)
		case t.is("{"):
			p.next()
			if depth++; depth > maxDepth {
				return nil, fmt.Errorf("line %d: too deep", t.line)
			}
			out = append(out, stmt{kind: stmtOpen, line: t.line})
		case t.is("}"):
			p.next()
			if depth--; depth == 0 {
				return out, nil
			}
			out = append(out, stmt{kind: stmtClose, line: t.line})
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
			out = append(out, stmt{kind: stmtRegs, line: t.line, regs: regs})
		case t.kind == tokenName && t.text[0] == '.':
			vs, err := p.variables(false)
			if err != nil {
				return nil, err
			}
			for _, v := range vs {
				out = append(out, stmt{kind: stmtVar, line: t.line, v: v})
			}
		case t.kind == tokenName && p.toks[p.at+1].is(":"):
			p.at += 2
			out = append(out, stmt{kind: stmtLabel, line: t.line, name: t.text})
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
func (p *parser) registers() ([]regDecl, error) {
	p.next()
	t := p.next()
	kind, ok := typeOf(strings.TrimPrefix(t.text, "."))
	if !ok {
		return nil, fmt.Errorf("line %d: registers of type %q", t.line, t.text)
	}
	var out []regDecl
	for {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		d := regDecl{name: name, typ: kind}
		if p.accept("<") {
			if d.count, err = p.number(1 << 20); err != nil {
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
func (p *parser) instruction() (stmt, error) {
	first := p.peek()
	s := stmt{kind: stmtInstr, line: first.line}
	var err error
	if p.accept("@") {
		s.negate = p.accept("!")
		if s.pred, err = p.name(); err != nil {
			return s, err
		}
	}
	op, err := p.name()
	if err != nil {
		return s, err
	}
	s.op = strings.Split(op, ".")
	for !p.peek().is(";") {
		if len(s.args) > 0 {
			if err := p.expect(","); err != nil {
				return s, err
			}
		}
		o, err := p.operand(0)
		if err != nil {
			return s, err
		}
		s.args = append(s.args, o)
	}
	end := p.next()
	s.text = strings.Join(strings.Fields(p.src[first.at:end.at]), " ")
	if len(s.text) > 200 {
		s.text = s.text[:200] + "…"
	}
	return s, nil
}

func (p *parser) operand(depth int) (operand, error) {
	t := p.peek()
	if depth > 3 {
		return operand{}, fmt.Errorf("line %d: operands too deep", t.line)
	}
	switch {
	case t.is("["):
		p.next()
		return p.address()
	case t.is("{"), t.is("("):
		p.next()
		o, end := operand{kind: operandVec}, "}"
		if t.text == "(" {
			o.kind, end = operandList, ")"
		}
		for !p.accept(end) {
			if len(o.list) > 0 {
				if err := p.expect(","); err != nil {
					return o, err
				}
			}
			e, err := p.operand(depth + 1)
			if err != nil {
				return o, err
			}
			o.list = append(o.list, e)
		}
		return o, nil
	case t.is("!"):
		p.next()
		name, err := p.name()
		return operand{name: name, not: true}, err
	case t.kind == tokenNumber || t.is("-") || t.is("+"):
		return p.immediate()
	}
	name, err := p.name()
	if err != nil {
		return operand{}, err
	}
	o := operand{name: name}
	if p.accept("|") {
		o.second, err = p.name()
	} else {
		o.off, err = p.offset()
	}
	return o, err
}

// address reads name+off] or number].
func (p *parser) address() (operand, error) {
	o := operand{kind: operandAddr}
	var err error
	if p.peek().kind == tokenName {
		if o.name, err = p.name(); err != nil {
			return o, err
		}
		if o.off, err = p.offset(); err != nil {
			return o, err
		}
	} else {
		imm, err := p.immediate()
		if err != nil {
			return o, err
		}
		o.off = int64(imm.imm)
	}
	return o, p.expect("]")
}

// offset reads +n, +-n or -n, if there is one.
func (p *parser) offset() (int64, error) {
	if !p.peek().is("+") && !p.peek().is("-") {
		return 0, nil
	}
	imm, err := p.immediate()
	if err == nil && imm.float != 0 {
		err = fmt.Errorf("line %d: a distance must be a whole number", p.peek().line)
	}
	return int64(imm.imm), err
}

// immediate reads a number with its sign.
func (p *parser) immediate() (operand, error) {
	minus := false
	for k := 0; k < 2; k++ { // +-8
		if p.accept("-") {
			minus = !minus
		} else {
			p.accept("+")
		}
	}
	t := p.next()
	bad := fmt.Errorf("line %d: expected a number, found %q", t.line, t.text)
	if t.kind != tokenNumber {
		return operand{}, bad
	}
	o := operand{kind: operandImm}
	s := t.text
	var err error
	switch {
	case len(s) == 10 && (s[:2] == "0f" || s[:2] == "0F"):
		o.float = 4
		o.imm, err = strconv.ParseUint(s[2:], 16, 32)
		if minus {
			o.imm ^= 1 << 31
		}
	case len(s) == 18 && (s[:2] == "0d" || s[:2] == "0D"):
		o.float = 8
		o.imm, err = strconv.ParseUint(s[2:], 16, 64)
		if minus {
			o.imm ^= 1 << 63
		}
	case strings.Contains(s, "."):
		var f float64
		f, err = strconv.ParseFloat(s, 64)
		o.float = 8
		if minus {
			f = -f
		}
		o.imm = math.Float64bits(f)
	default:
		o.imm, err = strconv.ParseUint(strings.TrimRight(s, "U"), 0, 64)
		if minus {
			o.imm = -o.imm
		}
	}
	if err != nil {
		return o, bad
	}
	return o, nil
}

// as gives the bits of an immediate as a value of a type.
func (o operand) as(t typ) uint64 {
	switch {
	case o.float == 4 && t.float() && t.size == 8:
		return math.Float64bits(float64(math.Float32frombits(uint32(o.imm))))
	case o.float == 8 && t.float() && t.size == 4 && !t.pair:
		return uint64(math.Float32bits(float32(math.Float64frombits(o.imm))))
	}
	return o.imm
}
