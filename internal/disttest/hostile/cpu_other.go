//go:build !unix

package hostile

import "time"

// cpu is not known here.
func cpu() time.Duration { return 0 }
