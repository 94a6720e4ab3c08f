package syntax

import (
	"fmt"
	"strings"
)

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

// lexer cuts PTX into tokens, comments left out. After an error there are no more.
type lexer struct {
	src  string
	at   int // of what comes next
	line int
	err  error
}

func (x *lexer) broken(format string, a ...any) token {
	x.err, x.at = fmt.Errorf(format, a...), len(x.src)
	return token{tokenEnd, "the end", x.line, x.at}
}

// blank passes over what lies between tokens.
func (x *lexer) blank() {
	src := x.src
	for x.at < len(src) {
		switch c := src[x.at]; {
		case c == '\n':
			x.line++
			x.at++
		case c == ' ' || c == '\t' || c == '\r' || c == 0:
			x.at++
		case strings.HasPrefix(src[x.at:], "//"):
			for x.at < len(src) && src[x.at] != '\n' {
				x.at++
			}
		case strings.HasPrefix(src[x.at:], "/*"):
			inside, _, ok := strings.Cut(src[x.at+2:], "*/")
			x.line += strings.Count(inside, "\n")
			if !ok {
				x.broken("line %d: a comment without an end", x.line)
				return
			}
			x.at += len(inside) + 4
		default:
			return
		}
	}
}

// token gives the next token.
func (x *lexer) token() token {
	x.blank()
	src, i := x.src, x.at
	if i == len(src) {
		return token{tokenEnd, "the end", x.line, i}
	}
	from, kind := i, tokenMark
	switch c := src[i]; {
	case c == '"':
		for i++; i < len(src) && src[i] != '"' && src[i] != '\n'; i++ {
		}
		if i == len(src) || src[i] != '"' {
			return x.broken("line %d: a string without an end", x.line)
		}
		x.at = i + 1
		return token{tokenString, src[from+1 : i], x.line, from}
	case c >= '0' && c <= '9':
		kind = tokenNumber
		for i < len(src) && (wordByte[src[i]] || src[i] == '.') {
			i++
		}
	case nameByte[c]:
		kind = tokenName
		for i++; i < len(src); i++ {
			if nameByte[src[i]] {
				continue
			}
			if src[i] == ':' && i+2 < len(src) && src[i+1] == ':' && nameByte[src[i+2]] { // .L2::128B
				i++
				continue
			}
			break
		}
	case c < ' ' || c > '~':
		return x.broken("line %d: byte %#x in the text", x.line, c)
	default:
		i++
	}
	x.at = i
	return token{kind, src[from:i], x.line, from}
}

// wordByte and nameByte say which bytes words and names are made of.
var wordByte, nameByte = bytesOf(""), bytesOf(".%$")

func bytesOf(more string) (is [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_" + more) {
		is[c] = true
	}
	return is
}
