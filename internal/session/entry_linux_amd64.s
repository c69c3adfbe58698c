#include "textflag.h"

// func entry()
//
// The program's first instructions (link -E). Go's runtime opens /dev/null if descriptor 0, 1 or 2 is closed, which
// later cannot be distinguished from a /dev/null of the caller. Therefore the descriptors are checked before the
// runtime starts.
TEXT ·entry(SB), NOSPLIT|NOFRAME, $0
	XORL	BX, BX // the descriptor
	XORL	R12, R12
next:
	MOVL	$72, AX // fcntl
	MOVL	BX, DI
	MOVL	$1, SI // F_GETFD
	SYSCALL
	CMPQ	AX, $-9 // EBADF
	JNE	open
	BTSL	BX, R12
open:
	INCL	BX
	CMPL	BX, $3
	JLT	next
	MOVL	R12, ·closedAtStart(SB)
	JMP	_rt0_amd64_linux(SB)
