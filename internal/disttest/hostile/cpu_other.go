//go:build !unix

package hostile

import "time"

// CPU is not known here.
func CPU() time.Duration { return 0 }
