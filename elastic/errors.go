package elastic

import (
	"fmt"
	"os"

	"github.com/weft-project/weft/elastic/internal/errorfile"
)

// WriteError writes why this worker is about to fail where its agent finds it, for the report of
// the job's failure. It does nothing where no agent has named a file.
func WriteError(why error) error {
	path := os.Getenv(ErrorFileVariable)
	if path == "" || why == nil {
		return nil
	}
	if err := errorfile.Write(path, why); err != nil {
		return fmt.Errorf("elastic: the error file: %w", err)
	}
	return nil
}
