package resilient

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/parallel"
)

func TestAFailureIsFinalForTheWorkerThatHasFailedAndNotForTheOthers(t *testing.T) {
	failed := fmt.Errorf("step 3: %w", &parallel.FailureError{Rank: 1, Worker: "worker1", Text: "no"})
	require.Equal(t, elastic.Final(failed), ownFailure("worker1", failed))
	require.Equal(t, failed, ownFailure("worker0", failed))
	lost := errors.New("somebody is lost")
	require.Equal(t, lost, ownFailure("worker1", lost))
	require.NoError(t, ownFailure("worker1", nil))
}
