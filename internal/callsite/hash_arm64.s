#include "textflag.h"

// func stackHash(frames int) uint64
TEXT ·stackHash(SB), NOSPLIT|NOFRAME, $0-16
	MOVD R29, R0
	MOVD $0, R1
	MOVD frames+0(FP), R2
	MOVD $0x9E3779B97F4A7C15, R3
	MOVD $0x100000, R7
	CBZ  R0, done

frame:
	MOVD 8(R0), R4 // the return address lies above the saved frame pointer
	EOR  R4, R1
	MUL  R3, R1
	ROR  $29, R1
	MOVD (R0), R5
	SUB  R0, R5, R6
	MOVD R5, R0
	CMP  R7, R6 // the next frame is above this one and near; a stack ends with 0
	BHI  done
	SUB  $1, R2
	CBNZ R2, frame

done:
	MOVD R1, ret+8(FP)
	RET
