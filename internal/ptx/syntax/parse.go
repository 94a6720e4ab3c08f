package syntax

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// parser reads tokens; its first error ends it.
type parser struct {
	lexer
	tok, ahead token // the next one, and the one behind it
	out        *Source
	opcodes    map[string][]string // cut at their dots
	args       []Operand           // room for those of instructions
	statements []Statement         // and for those of a body
}

// maxDepth bounds what may stand within one another.
const maxDepth = 64

// Parse reads a module's text.
func Parse(src string) (*Source, error) {
	if len(src) > maxSource {
		return nil, fmt.Errorf("%d bytes of text, at most %d are read", len(src), maxSource)
	}
	p := &parser{lexer: lexer{src: src, line: 1}, out: &Source{Funcs: map[string]*Function{}}, opcodes: map[string][]string{}}
	p.tok, p.ahead = p.token(), p.token()
	for p.tok.kind != tokenEnd {
		if err := p.top(); err != nil {
			return nil, cmp.Or(p.err, err)
		}
	}
	return p.out, p.err
}

func (p *parser) next() token {
	t := p.tok
	if t.kind != tokenEnd {
		p.tok, p.ahead = p.ahead, p.token()
	}
	return t
}

func (p *parser) accept(mark string) bool {
	if p.tok.is(mark) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(mark string) error {
	if t := p.next(); !t.is(mark) {
		return fmt.Errorf("line %d: expected %q, found %q", t.line, mark, t.text)
	}
	return nil
}

func (p *parser) name() (string, error) {
	t := p.next()
	if t.kind != tokenName {
		return "", fmt.Errorf("line %d: expected a name, found %q", t.line, t.text)
	}
	return t.text, nil
}

// number reads a whole number of at most max.
func (p *parser) number(limit int) (int, error) {
	t := p.next()
	n, err := strconv.ParseUint(strings.TrimRight(t.text, "U"), 0, 63)
	if t.kind != tokenNumber || err != nil || n > uint64(limit) {
		return 0, fmt.Errorf("line %d: expected a number of at most %d, found %q", t.line, limit, t.text)
	}
	return int(n), nil
}

func (p *parser) skipLine() {
	for line := p.tok.line; p.tok.kind != tokenEnd && p.tok.line == line; {
		p.next()
	}
}

func (p *parser) skipTo(mark string) {
	for p.tok.kind != tokenEnd && !p.next().is(mark) {
	}
}

// top reads one thing of the module.
func (p *parser) top() error {
	t := p.tok
	extern := false
	for {
		switch p.tok.text {
		case ".extern":
			extern = true
			fallthrough
		case ".visible", ".weak", ".common":
			p.next()
			continue
		}
		break
	}
	switch d := p.tok; d.text {
	case ".version", ".address_size", ".file", ".loc":
		p.skipLine()
	case ".target":
		line := d.line
		p.next()
		if n := p.tok; n.line == line && strings.HasPrefix(n.text, "sm_") {
			digits := strings.TrimRight(n.text[3:], "af")
			arch, err := strconv.Atoi(digits)
			if err != nil {
				return fmt.Errorf("line %d: target %q", line, n.text)
			}
			p.out.Target, p.out.Exact = arch, strings.HasSuffix(n.text, "a")
		}
		for p.tok.line == line && p.tok.kind != tokenEnd {
			p.next()
		}
	case ".pragma":
		p.skipTo(";")
	case ".section":
		p.skipTo("}")
	case ".entry", ".func":
		return p.function()
	case ".global", ".const", ".shared":
		vs, err := p.variables(extern)
		if err != nil {
			return err
		}
		p.out.Vars = append(p.out.Vars, vs...)
	default:
		return fmt.Errorf("line %d: expected a directive of a module, found %q", t.line, d.text)
	}
	return nil
}

// function reads an .entry or .func, with or without its body.
func (p *parser) function() error {
	head := p.next()
	f := &Function{Entry: head.text == ".entry", Line: head.line}
	var err error
	for p.tok.text == ".noreturn" || p.tok.text == ".attribute" {
		if p.next().text == ".attribute" {
			p.skipTo(")")
		}
	}
	if p.tok.is("(") {
		if f.Ret, err = p.formals(); err != nil {
			return err
		}
	}
	if f.Name, err = p.name(); err != nil {
		return err
	}
	if p.tok.is("(") {
		if f.Params, err = p.formals(); err != nil {
			return err
		}
	}
	for !p.tok.is("{") && !p.tok.is(";") {
		switch t := p.next(); {
		case t.kind == tokenEnd:
			return fmt.Errorf("line %d: %s has no body", f.Line, f.Name)
		case t.text == ".maxntid" || t.text == ".reqntid":
			f.Threads = 1
			for {
				n, err := p.number(1 << 16)
				if err != nil {
					return err
				}
				f.Threads = min(f.Threads*n, 1<<20)
				if !p.accept(",") {
					break
				}
			}
		}
	}
	if old := p.out.Funcs[f.Name]; old != nil && old.Defined {
		return fmt.Errorf("line %d: %s is defined twice", f.Line, f.Name)
	}
	p.out.Funcs[f.Name] = f
	if p.accept(";") {
		return nil
	}
	f.Defined = true
	p.next()
	f.Body, err = p.body()
	return err
}

// formals reads the parameters of a function.
func (p *parser) formals() ([]*Variable, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	var out []*Variable
	for !p.accept(")") {
		if len(out) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		v, err := p.variable()
		if err != nil {
			return nil, err
		}
		if v.Space != "param" {
			return nil, fmt.Errorf("line %d: parameter %s lies in .%s; only .param is understood", v.Line, v.Name, v.Space)
		}
		if out = append(out, v); len(out) > 4096 {
			return nil, fmt.Errorf("line %d: more than 4096 parameters", v.Line)
		}
	}
	return out, nil
}

// variables reads one declaration, which may have several names.
func (p *parser) variables(extern bool) ([]*Variable, error) {
	v, err := p.variable()
	if err != nil {
		return nil, err
	}
	out := []*Variable{v}
	for {
		v.Extern = extern
		if v.Bytes == 0 && v.Space == "shared" {
			v.Extern = true
		}
		if p.accept("=") {
			if err := p.initial(v); err != nil {
				return nil, err
			}
		}
		if !p.accept(",") {
			return out, p.expect(";")
		}
		next := &Variable{Space: v.Space, Align: v.Align, Elem: v.Elem, Line: p.tok.line}
		if err := p.declarator(next, 1); err != nil {
			return nil, err
		}
		v = next
		out = append(out, v)
	}
}

// maxBytes bounds what one variable may have.
const maxBytes = 1 << 30

// variable reads .space .align n .type name[n][m].
func (p *parser) variable() (*Variable, error) {
	v := &Variable{Line: p.tok.line}
	count := 1
	for {
		t := p.tok
		if t.kind != tokenName {
			return nil, fmt.Errorf("line %d: expected a variable, found %q", t.line, t.text)
		}
		if t.text[0] != '.' {
			break
		}
		p.next()
		switch d := t.text[1:]; d {
		case "global", "const", "shared", "local", "param", "reg":
			v.Space = d
		case "align":
			n, err := p.number(1 << 12)
			if err != nil {
				return nil, err
			}
			if n == 0 || n&(n-1) != 0 {
				return nil, fmt.Errorf("line %d: alignment %d is no power of two", t.line, n)
			}
			v.Align = max(n, v.Align)
		case "v2":
			count = 2
		case "v4":
			count = 4
		case "ptr", "managed":
		case "attribute":
			p.skipTo(")")
		default:
			e, ok := typeOf(d)
			if !ok {
				if d == "texref" || d == "samplerref" || d == "surfref" {
					return nil, fmt.Errorf("line %d: textures and surfaces are not understood", t.line)
				}
				continue // .ptr's .global and the like
			}
			v.Elem = e
		}
	}
	if v.Elem.Size == 0 {
		return nil, fmt.Errorf("line %d: a variable without a type", v.Line)
	}
	return v, p.declarator(v, count)
}

// declarator reads the name and its dimensions.
func (p *parser) declarator(v *Variable, count int) (err error) {
	if v.Name, err = p.name(); err != nil {
		return err
	}
	v.Bytes = v.Elem.Size * count
	v.Align = max(v.Align, v.Bytes)
	for p.accept("[") {
		n := 0
		if !p.tok.is("]") {
			if n, err = p.number(maxBytes); err != nil {
				return err
			}
		}
		if v.Bytes *= n; v.Bytes > maxBytes {
			return fmt.Errorf("line %d: %s has more than %d bytes", v.Line, v.Name, maxBytes)
		}
		if err := p.expect("]"); err != nil {
			return err
		}
	}
	return nil
}

// initial reads the value of a variable: a number, or numbers in braces.
func (p *parser) initial(v *Variable) error {
	depth := 0
	for {
		t := p.tok
		switch {
		case t.is("{"):
			if depth++; depth > maxDepth {
				return fmt.Errorf("line %d: too deep", t.line)
			}
			p.next()
			continue
		case t.is("}"):
			p.next()
			if depth--; depth <= 0 {
				return nil
			}
			continue
		case t.is(",") && depth > 0:
			p.next()
			continue
		}
		o, err := p.immediate()
		if err != nil {
			return err
		}
		if len(v.Init)+v.Elem.Size > v.Bytes {
			return fmt.Errorf("line %d: %s has more values than room", t.line, v.Name)
		}
		bits := o.As(v.Elem)
		for k := range v.Elem.Size {
			v.Init = append(v.Init, byte(bits>>(8*k)))
		}
		if depth == 0 {
			return nil
		}
	}
}
