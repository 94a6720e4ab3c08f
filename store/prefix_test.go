package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
)

func TestPrefixesNestOuterLast(t *testing.T) {
	c, all := context.Background(), store.NewMemory()
	inner := store.NewPrefix("a", all)
	outer := store.NewPrefix("b", inner)
	require.NoError(t, outer.Set(c, "k", []byte("v")))
	require.NoError(t, inner.Set(c, "k", []byte("v")))
	require.NoError(t, all.Set(c, "ab/k", []byte("v")))
	require.NoError(t, all.Set(c, "a/", []byte("v")))
	for s, want := range map[store.Store][]string{all: {"a/", "a/b/k", "a/k", "ab/k"}, inner: {"b/k", "k"}, outer: {"k"}} {
		keys, err := s.ListKeys(c)
		require.NoError(t, err)
		require.Equal(t, want, keys)
	}
	n, err := outer.NumKeys(c)
	require.NoError(t, err)
	require.Equal(t, int64(4), n, "of the whole store")
}

func TestGetUnderlyingStoreAsInPyTorchsSuite(t *testing.T) {
	all := store.NewMemory()
	p := store.NewPrefix("p", all)
	require.Same(t, all, p.Underlying())
	require.Same(t, p, store.NewPrefix("q", p).Underlying())
	require.ErrorContains(t, store.NewPrefix("p", nil).Set(context.Background(), "k", nil), "no store")
}

// spy is a user's store that notes the keys it is asked for.
type spy struct {
	store.Store
	keys []string
}

func (s *spy) Append(c context.Context, key string, v []byte) error {
	s.keys = append(s.keys, key)
	return s.Store.Append(c, key, v)
}

func (s *spy) MultiGet(c context.Context, keys ...string) ([][]byte, error) {
	s.keys = append(s.keys, keys...)
	return s.Store.MultiGet(c, keys...)
}

func (s *spy) MultiSet(c context.Context, pairs ...store.Pair) error {
	for _, p := range pairs {
		s.keys = append(s.keys, p.Key)
	}
	return s.Store.MultiSet(c, pairs...)
}

func (s *spy) Push(context.Context, string, []byte) error { return store.ErrUnsupported }

func TestAUsersStoreGetsPrefixedKeysAsInPyTorchsSuite(t *testing.T) {
	c, s := context.Background(), &spy{Store: store.NewMemory()}
	p := store.NewPrefix("p", s)
	pairs := []store.Pair{{Key: "foo", Value: []byte("bar")}, {Key: "x", Value: []byte("y")}}
	require.NoError(t, p.MultiSet(c, pairs...))
	require.Equal(t, []store.Pair{{Key: "foo", Value: []byte("bar")}, {Key: "x", Value: []byte("y")}}, pairs, "the caller's pairs are not touched")
	require.NoError(t, p.Append(c, "foo", []byte("po")))
	got, err := p.MultiGet(c, "foo", "x")
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("barpo"), []byte("y")}, got)
	require.Equal(t, []string{"p/foo", "p/x", "p/foo", "p/foo", "p/x"}, s.keys)
	require.ErrorIs(t, p.Push(c, "q", nil), store.ErrUnsupported, "what a store cannot do its views cannot")
}

func TestClosingAViewEndsItsCallsAndWatchesAndNotTheStore(t *testing.T) {
	leak.Check(t)
	c, all := context.Background(), store.NewMemory()
	p := store.NewPrefix("p", all)
	w, err := p.Watch(c, "k")
	require.NoError(t, err)
	require.NoError(t, all.Set(c, "p/k", []byte("v")))
	require.Equal(t, store.Change{Kind: store.Created, Key: "k", New: []byte("v")}, <-w.C)
	done := make(chan error, 2)
	go func() { done <- p.Barrier(c, "b", 2) }()
	go func() { _, err := p.Pop(c, "q"); done <- err }()
	require.NoError(t, p.Close())
	for range 2 {
		require.ErrorIs(t, <-done, store.ErrClosed)
	}
	_, open := <-w.C
	require.False(t, open)
	require.ErrorIs(t, w.Err(), store.ErrClosed)
	_, _, err = p.TryPop(c, "q")
	require.ErrorIs(t, err, store.ErrClosed)
	require.NoError(t, all.Set(c, "p/k", nil))
	require.NoError(t, p.Close())
}

func TestAWatchThroughAViewEndsWithTheStore(t *testing.T) {
	leak.Check(t)
	all := store.NewMemory()
	w, err := store.NewPrefix("p", store.NewPrefix("q", all)).Watch(context.Background(), "k")
	require.NoError(t, err)
	require.NoError(t, all.Close())
	_, open := <-w.C
	require.False(t, open)
	require.ErrorIs(t, w.Err(), store.ErrClosed)
	var typed *store.Error
	require.True(t, errors.As(w.Err(), &typed))
	require.Equal(t, "q/p/k", typed.Key)
}
