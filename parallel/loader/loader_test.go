package loader_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/loader"
)

// same makes a batch of rows as they are.
func same[R any](rows []R) ([]R, error) { return rows, nil }

func TestRanksReadTheRowsOfEachStepFromAnyStepOn(t *testing.T) {
	for seed := range uint64(60) {
		src := rand.New(rand.NewPCG(seed, 1))
		n, size := 1+src.IntN(40), 1+src.IntN(5)
		config := loader.Config{Seed: src.Uint64(), Batch: 1 + src.IntN(20), Size: size, First: src.Uint64N(1000), Ahead: src.IntN(4)}
		source := loader.Func[int]{N: n, Read: func(row int) (int, error) { runtime.Gosched(); return 3 * row, nil }}
		rows := parallel.Rows{Seed: config.Seed, N: n, Batch: config.Batch}
		for config.Rank = range size {
			l, err := loader.New(source, same[int], config)
			require.NoError(t, err)
			for step := config.First; step < config.First+7; step++ {
				require.Equal(t, step, l.Step())
				b, err := l.Next(t.Context())
				require.NoError(t, err)
				require.Equal(t, step, b.Step)
				require.Equal(t, rows.Of(step, config.Rank, size), b.Rows)
				require.Len(t, b.Of, len(b.Rows))
				for i, row := range b.Rows {
					require.Equal(t, 3*row, b.Of[i])
				}
			}
			require.NoError(t, l.Close())
		}
	}
}

func TestALoaderReadsAheadAndNoFurther(t *testing.T) {
	for _, ahead := range []int{1, 2, 5} {
		synctest.Test(t, func(t *testing.T) {
			var reads, under, most atomic.Int32
			source := loader.Func[int]{N: 100, Read: func(row int) (int, error) {
				most.Store(max(most.Load(), under.Add(1)))
				time.Sleep(time.Second)
				under.Add(-1)
				reads.Add(1)
				return row, nil
			}}
			l, err := loader.New(source, same[int], loader.Config{Batch: 1, Ahead: ahead})
			require.NoError(t, err)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.EqualValues(t, ahead, reads.Load(), "and then it waits")
			require.EqualValues(t, ahead, most.Load(), "all at once")
			began := time.Now()
			for range 20 {
				_, err := l.Next(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Second) // the training
			}
			require.Equal(t, 20*time.Second, time.Since(began), "nobody waits for what is read beside the training")
			synctest.Wait()
			require.LessOrEqual(t, int(reads.Load()), 20+ahead)
			require.NoError(t, l.Close())
		})
	}
}

func TestWhatCannotBeReadEndsTheLoaderWithItsStepAndRow(t *testing.T) {
	bad := errors.New("a scratch")
	rows := parallel.Rows{N: 50, Batch: 4}
	at := rows.Of(5, 0, 1)[2]
	for what, k := range map[string]struct {
		source loader.Func[int]
		batch  func(rows []int) ([]int, error)
		row    int
		text   string
	}{
		"row": {loader.Func[int]{N: 50, Read: func(row int) (int, error) {
			if row == at {
				return 0, bad
			}
			return row, nil
		}}, same[int], at, "a scratch"},
		"panic": {loader.Func[int]{N: 50, Read: func(row int) (int, error) {
			if row == at {
				panic("at the disco")
			}
			return row, nil
		}}, same[int], at, "at the disco"},
		"batch": {loader.Func[int]{N: 50, Read: func(row int) (int, error) { return row, nil }}, func(rows []int) ([]int, error) {
			if slices.Contains(rows, at) {
				return nil, bad
			}
			return rows, nil
		}, -1, "a scratch"},
	} {
		t.Run(what, func(t *testing.T) {
			l, err := loader.New(k.source, k.batch, loader.Config{Batch: 4, Ahead: 3})
			require.NoError(t, err)
			var failed *loader.Error
			step := uint64(0)
			for ; failed == nil && step < 20; step++ {
				_, err = l.Next(t.Context())
				errors.As(err, &failed)
			}
			require.NotNil(t, failed)
			require.Equal(t, step-1, failed.Step)
			require.Equal(t, failed.Step, l.Step(), "it is the step to go on at")
			require.Equal(t, k.row, failed.Row)
			require.ErrorContains(t, err, k.text)
			require.Equal(t, k.text == "a scratch", errors.Is(err, bad))
			_, again := l.Next(t.Context())
			require.Equal(t, err, again)
			require.NoError(t, l.Close())
		})
	}
}

func TestANextThatIsGivenUpLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := loader.Func[int]{N: 30, Read: func(row int) (int, error) { time.Sleep(time.Minute); return row, nil }}
		l, err := loader.New(source, same[int], loader.Config{Batch: 1, Ahead: 1})
		require.NoError(t, err)
		given := 0
		for step := range uint64(5) {
			why := errors.New("no time")
			c, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
			b, err := l.Next(c)
			cancel()
			if err != nil {
				given++
				require.ErrorIs(t, err, why)
				require.Equal(t, step, l.Step())
				b, err = l.Next(t.Context())
			}
			require.NoError(t, err)
			require.Equal(t, step, b.Step)
		}
		require.Positive(t, given)
		require.NoError(t, l.Close())
	})
}

func TestACloseWaitsForWhatIsBeingReadAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails where a goroutine is left
		var under atomic.Int32
		source := loader.Func[int]{N: 30, Read: func(row int) (int, error) {
			under.Add(1)
			defer under.Add(-1)
			time.Sleep(time.Second)
			return row, nil
		}}
		for wait := range 4 {
			l, err := loader.New(source, same[int], loader.Config{Batch: 3, Ahead: 2})
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() {
				for {
					if _, err := l.Next(t.Context()); err != nil {
						ended <- err
						return
					}
				}
			}()
			time.Sleep(time.Duration(wait) * 700 * time.Millisecond)
			began := time.Now()
			require.NoError(t, l.Close())
			require.LessOrEqual(t, time.Since(began), time.Second, "a row at most is read to its end")
			require.Zero(t, under.Load())
			require.ErrorIs(t, <-ended, loader.ErrClosed)
			require.NoError(t, l.Close())
			_, err = l.Next(t.Context())
			require.ErrorIs(t, err, loader.ErrClosed)
		}
	})
}

func TestARankWithoutRowsGetsAnEmptyBatch(t *testing.T) {
	l, err := loader.New(loader.Numbers(10), func([]int) (string, error) { return "some", nil }, loader.Config{Batch: 1, Rank: 1, Size: 2})
	require.NoError(t, err)
	b, err := l.Next(t.Context())
	require.NoError(t, err)
	require.Empty(t, b.Rows)
	require.Empty(t, b.Of)
	require.NoError(t, l.Close())
}

func TestAConfigThatCannotBeIsRefusedWithAllThatIsWrong(t *testing.T) {
	_, err := loader.New(loader.Numbers(0), same[int], loader.Config{Batch: -1, Rank: 2, Size: 2, Ahead: -1})
	require.ErrorIs(t, err, loader.ErrConfig)
	for _, text := range []string{"0 rows", "Batch -1", "Rank 2 of Size 2", "Ahead -1"} {
		require.ErrorContains(t, err, text)
	}
	_, err = loader.New[int, int](nil, nil, loader.Config{Batch: 1})
	require.ErrorIs(t, err, loader.ErrConfig)
}
