package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/printable"
	"github.com/weft-project/weft/rpc/internal/wire"
)

type quotaError struct {
	Used, Limit int
	hidden      string //nolint:unused // does not travel
}

func (e *quotaError) Error() string { return fmt.Sprintf("%d of %d used", e.Used, e.Limit) }

type plainError struct{ Why string }

func (e plainError) Error() string { return e.Why }

type shyError struct{ why string }

func (e *shyError) Error() string { return e.why }

type tensorError struct{ T []int }

func (e tensorError) Error() string { return "t" }

type stringError string

func (e stringError) Error() string { return string(e) }

var typedErrors = map[string]error{
	"pointer": &quotaError{Used: 3, Limit: 2},
	"value":   plainError{"no \"reason\"\n\tat all \x1b[31m 世界"},
	"wrapped": fmt.Errorf("while working: %w", &quotaError{Used: 3, Limit: 2}),
	"joined":  errors.Join(errors.New("first"), fmt.Errorf("and: %w", plainError{"no \"reason\"\n\tat all \x1b[31m 世界"}), &quotaError{Used: 3, Limit: 2}, ErrNotServed),
}

func TestErrorsOfListedTypesArriveWholeAlsoOverHopsThatDoNotKnowThem(t *testing.T) {
	fail := Define("fail", func(_ context.Context, which string) (int, error) { return 0, typedErrors[which] })
	relay := Define("relay", func(c context.Context, which string) (int, error) {
		_, err := fail.Call(c, "worker2", which)
		return 0, fmt.Errorf("relayed: %w", err)
	})
	ws := sim(t, 3, func(i int, cfg *Config) {
		cfg.Functions = []Function{fail, relay}
		if i != 1 {
			cfg.Errors = []TypedError{ErrorType[*quotaError]("quota"), ErrorType[plainError]("plain")}
		}
	})
	c := ws[0].Context(t.Context())
	for name, want := range typedErrors {
		for _, call := range []func() (int, error){
			func() (int, error) { return fail.Call(c, "worker2", name) },
			func() (int, error) { return relay.Call(c, "worker1", name) },
			func() (int, error) { return fail.Call(ws[2].Context(t.Context()), "worker2", name) },
		} {
			_, err := call()
			var quota, wantQuota *quotaError
			require.Equal(t, errors.As(want, &wantQuota), errors.As(err, &quota), name)
			require.Equal(t, wantQuota, quota, name)
			var plain, wantPlain plainError
			require.Equal(t, errors.As(want, &wantPlain), errors.As(err, &plain), name)
			require.Equal(t, wantPlain, plain, name)
			require.ErrorContains(t, err, printable.Lines(want.Error(), maxErrorText), "the text arrives, and steers no terminal")
			require.Equal(t, errors.Is(want, ErrNotServed), errors.Is(err, ErrNotServed))
			var remote *RemoteError
			require.ErrorAs(t, err, &remote)
			require.Equal(t, "worker2", remote.Worker)
		}
	}
	_, err := fail.Call(ws[1].Context(t.Context()), "worker2", "wrapped")
	var quota *quotaError
	require.False(t, errors.As(err, &quota), "worker1 does not list it")
	var remote *RemoteError
	require.ErrorAs(t, err, &remote)
	require.Equal(t, "*rpc.quotaError", remote.Type, "what cannot be rebuilt keeps its name")
	require.ErrorContains(t, err, "3 of 2 used")
}

func TestErrorTypesThatCannotTravelAreRefusedOnJoining(t *testing.T) {
	var types errorTypes
	errs := types.list([]TypedError{
		ErrorType[*shyError]("shy"), ErrorType[stringError]("string"), ErrorType[plainError](""), {}, ErrorType[*quotaError]("a"),
		ErrorType[*quotaError]("b"), ErrorType[plainError]("a"), ErrorType[tensorError]("t"),
	})
	require.Len(t, errs, 6)
	all := errors.Join(errs...).Error()
	for _, want := range []string{"no exported field", "neither a struct", "1 to 128 bytes", "make it with ErrorType", `"b" (*rpc.quotaError) is listed twice`, `"a" (rpc.plainError) is listed twice`} {
		require.Contains(t, all, want)
	}
}

func TestAnErrorFromACallWithoutAWorkerIsKnownAtTheCaller(t *testing.T) {
	forgot := Define("forgot", func(_ context.Context, n int) (int, error) { return double.Call(context.Background(), "worker0", n) })
	ws := sim(t, 2, serve(forgot))
	_, err := forgot.Call(ws[0].Context(t.Context()), "worker1", 1)
	require.ErrorIs(t, err, ErrNoWorker)
}

func TestWhatAnErrorCarriesIsBounded(t *testing.T) {
	var types errorTypes
	require.Empty(t, types.list([]TypedError{ErrorType[plainError]("plain"), ErrorType[*quotaError]("quota")}))
	var many []error
	for i := range 100 {
		many = append(many, &quotaError{Used: i})
	}
	deep := errors.Join(many...)
	for range 5000 {
		deep = fmt.Errorf("%w", deep)
	}
	for _, err := range []error{
		errors.Join(many...), deep, plainError{strings.Repeat("世", 100<<10)}, plainError{"\xff\xfe"}, (*quotaError)(nil), fmt.Errorf("%w", error(nilError{})),
	} {
		w := types.toWire("worker0", guardNil{err})
		require.True(t, utf8.ValidString(w.Text))
		require.LessOrEqual(t, len(w.Text), maxErrorText+8)
		require.LessOrEqual(t, len(w.Causes), maxCauses)
		for _, c := range w.Causes {
			require.LessOrEqual(t, len(c.Fields), maxCauseFields)
		}
		raw, eerr := wire.Encode(w)
		require.NoError(t, eerr)
		require.Less(t, len(raw), 512<<10)
	}
	forged := &wire.Error{Causes: make([]wire.Cause, 1000)}
	for i := range forged.Causes {
		forged.Causes[i] = wire.Cause{Name: "plain", Fields: []byte{0xff}}
	}
	require.Equal(t, "error on : ", types.fromWire(forged).Error())
}

type nilError struct{}

func (nilError) Error() string { return "nil" }

// guardNil has a text of its own, so that a nil pointer among the errors does no harm.
type guardNil struct{ error }

func (g guardNil) Error() string {
	if isNil(g.error) {
		return "nil"
	}
	return g.error.Error()
}
func (g guardNil) Unwrap() error { return g.error }

func FuzzErrors(f *testing.F) {
	var types errorTypes
	require.Empty(f, types.list([]TypedError{ErrorType[plainError]("plain"), ErrorType[*quotaError]("quota")}))
	for _, err := range typedErrors {
		raw, eerr := wire.Encode(types.toWire("worker0", err))
		require.NoError(f, eerr)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var w wire.Error
		if err := wire.Decode(raw, &w); err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		err := types.fromWire(&w)
		again := types.toWire("worker1", err)
		require.True(t, utf8.ValidString(again.Text))
		require.LessOrEqual(t, len(again.Causes), maxCauses)
		var quota *quotaError
		if errors.As(err, &quota) {
			require.NotNil(t, quota)
		}
	})
}
