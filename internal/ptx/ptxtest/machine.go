package ptxtest

import (
	"sync"

	"github.com/weft-project/weft/internal/ptx"
)

// texts are those of all machines of the process: a test loads what others have loaded before, and
// need not wait until it is compiled again.
var texts = sync.OnceValue(func() *ptx.Texts { return new(ptx.Texts) })

// New makes a machine that shares what it compiles with the others of this process.
func New(c ptx.Config) *ptx.Machine {
	c.Texts = texts()
	return ptx.New(c)
}
