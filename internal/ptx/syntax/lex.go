package syntax

import "fmt"

type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenName             // names, directives, registers and opcodes with all their dots
	tokenNumber           // as written, without a sign
	tokenString
	tokenMark // one character
)

type token struct {
	kind tokenKind
	text string
	line int
	at   int // in the source
}

func (t token) is(mark string) bool { return t.kind == tokenMark && t.text == mark }

// maxSource bounds the text of a module.
const maxSource = 64 << 20

// lex cuts PTX into tokens, comments left out.
func lex(src string) ([]token, error) {
	if len(src) > maxSource {
		return nil, fmt.Errorf("%d bytes of text, at most %d are read", len(src), maxSource)
	}
	var out []token
	line := 1
	for i := 0; i < len(src); {
		c := src[i]
		from := i
		switch {
		case c == '\n':
			line++
			i++
			continue
		case c == ' ' || c == '\t' || c == '\r' || c == 0:
			i++
			continue
		case c == '/' && i+1 < len(src) && src[i+1] == '/':
			for i < len(src) && src[i] != '\n' {
				i++
			}
			continue
		case c == '/' && i+1 < len(src) && src[i+1] == '*':
			for i += 2; i < len(src) && (src[i-1] != '*' || src[i] != '/' || i-from < 3); i++ {
				if src[i] == '\n' {
					line++
				}
			}
			if i++; i > len(src) {
				return nil, fmt.Errorf("line %d: a comment without an end", line)
			}
			continue
		case c == '"':
			for i++; i < len(src) && src[i] != '"' && src[i] != '\n'; i++ {
			}
			if i == len(src) || src[i] != '"' {
				return nil, fmt.Errorf("line %d: a string without an end", line)
			}
			i++
			out = append(out, token{tokenString, src[from+1 : i-1], line, from})
			continue
		case c >= '0' && c <= '9':
			for i < len(src) && (wordByte(src[i]) || src[i] == '.') {
				i++
			}
			out = append(out, token{tokenNumber, src[from:i], line, from})
			continue
		case nameByte(c):
			for i++; i < len(src); i++ {
				if nameByte(src[i]) {
					continue
				}
				if src[i] == ':' && i+2 < len(src) && src[i+1] == ':' && nameByte(src[i+2]) { // .L2::128B
					i++
					continue
				}
				break
			}
			out = append(out, token{tokenName, src[from:i], line, from})
			continue
		}
		if c < ' ' || c > '~' {
			return nil, fmt.Errorf("line %d: byte %#x in the text", line, c)
		}
		i++
		out = append(out, token{tokenMark, src[from:i], line, from})
	}
	return append(out, token{tokenEnd, "the end", line, len(src)}), nil
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

func nameByte(c byte) bool { return wordByte(c) || c == '.' || c == '%' || c == '$' }
