package gen

import (
	"strings"

	"github.com/weft-project/weft/device"
)

// Elements that are bfloat16 are registers of float32 once they are loaded: the upper halves of
// these, which lose nothing. What is stored is rounded, by an instruction of compute capability
// 8.0: with integers that takes six of them and a test for NaN, as long as memory takes.

// rounding makes bfloat16 of two float32, the upper one first.
const rounding = "cvt.rn.bf16x2.f32"

// roundingTarget is what a text that has it is for, and target any other.
const target, roundingTarget = "sm_75", "sm_80"

// targetOf is what some kernels are for.
func targetOf(ks []Kernel) string {
	for _, k := range ks {
		if strings.Contains(k.Body, rounding) {
			return roundingTarget
		}
	}
	return target
}

// computed is the dtype that elements have in registers.
func computed(d device.Dtype) device.Dtype {
	if d == device.BFloat16 {
		return device.Float32
	}
	return d
}

// rawOf is the PTX type of one element in memory.
func rawOf(d device.Dtype) string {
	if d == device.BFloat16 {
		return "u16"
	}
	return bitsOf(d)
}

// upper makes the bfloat16 in a register's lower half its number, in a register of a PTX type.
func (e *emitter) upper(typ, word string) string {
	r := e.reg(typ)
	e.set(r, "shl.b32", word, "16")
	return r
}

// apart are the numbers of words of two bfloat16 each.
func (e *emitter) apart(typ string, words []string) (regs []string) {
	for _, w := range words {
		hi := e.reg(typ)
		regs = append(regs, e.upper(typ, w), hi)
		e.set(hi, "and.b32", w, "0xffff0000")
	}
	return regs
}

// together makes words of pairs of numbers, rounded; bits are moved as they are.
func (e *emitter) together(typ string, regs []string) (words []string) {
	for k := 0; k < len(regs); k += 2 {
		if typ == "b32" {
			words = append(words, e.op("prmt.b32", regs[k], regs[k+1], "0x7632"))
		} else {
			words = append(words, e.op(rounding, regs[k+1], regs[k]))
		}
	}
	return words
}

// lower is together of one number.
func (e *emitter) lower(typ, v string) string {
	if typ == "b32" {
		return e.op("shr.u32", v, "16")
	}
	return e.op(rounding, f32(0), v)
}

// vector is the suffix of a PTX access to so many registers, and how these are written.
func vector(regs []string) (suffix, text string) {
	switch len(regs) {
	case 1:
		return "", regs[0]
	case 2:
		suffix = ".v2"
	default:
		suffix = ".v4"
	}
	return suffix, "{" + strings.Join(regs, ", ") + "}"
}
