package proctest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
)

// Address is one of this machine where nobody listens, and nobody will: for servers whose address
// must be known before they are there. A port of 127.0.0.1 that was free a moment ago may be taken
// when the server comes. Who listens at all addresses is in the way of one, too: a launcher at
// 29400 or 29500, or whoever was given a port by the system, from 32768 on where nothing else is
// configured.
func Address() string { return fmt.Sprintf("%s:%d", Host(), 20_000+rand.IntN(9000)) }

// Host is such an address without the port: one of its own where all of 127.0.0.0/8 is this
// machine.
func Host() string {
	if runtime.GOOS != "linux" && runtime.GOOS != "windows" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
}
