package resilient

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/parallel"
)

func TestAFailureIsThatOfTheWorkerThatHasFailedAndNotOfTheOthers(t *testing.T) {
	failed := fmt.Errorf("step 3: %w", &parallel.FailureError{Rank: 1, Worker: "worker1", Text: "no"})
	require.True(t, failedItself("worker1", failed))
	require.False(t, failedItself("worker0", failed))
	require.False(t, failedItself("worker1", errors.New("somebody is lost")))
	require.False(t, failedItself("worker1", nil))
}
