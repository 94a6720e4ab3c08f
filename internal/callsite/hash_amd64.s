#include "textflag.h"

// func stackHash(frames int) uint64
TEXT ·stackHash(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ BP, AX
	XORQ DX, DX
	MOVQ frames+0(FP), CX
	MOVQ $0x9E3779B97F4A7C15, BX
	TESTQ AX, AX
	JEQ  done

frame:
	XORQ  8(AX), DX // the return address lies above the saved frame pointer
	IMULQ BX, DX
	RORQ  $29, DX
	MOVQ  (AX), SI
	MOVQ  SI, DI
	SUBQ  AX, DI
	MOVQ  SI, AX
	CMPQ  DI, $0x100000 // the next frame is above this one and near; a stack ends with 0
	JHI   done
	DECQ  CX
	JNE   frame

done:
	MOVQ DX, ret+8(FP)
	RET
