package etcd

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkOperation is of one client and one member that keeps its data in memory. "put" is etcd's
// own, without a receipt.
func BenchmarkOperation(b *testing.B) {
	cfg := space(b)
	s := dial(b, cfg)
	c := b.Context()
	require.NoError(b, s.Set(c, "k", []byte("0")))
	for name, op := range map[string]func(i int) error{
		"put":  func(int) error { _, err := s.client.Put(c, s.names.value("raw"), "0"); return err },
		"set":  func(int) error { return s.Set(c, "k", []byte("0")) },
		"get":  func(int) error { _, err := s.Get(c, "k"); return err },
		"add":  func(int) error { _, err := s.Add(c, "k", 1); return err },
		"new":  func(i int) error { _, err := s.Add(c, fmt.Sprint(b.N, " ", i), 1); return err },
		"wait": func(int) error { return s.Wait(c, "k") },
		"queue": func(int) error {
			if err := s.Push(c, "q", nil); err != nil {
				return err
			}
			_, err := s.Pop(c, "q")
			return err
		},
	} {
		b.Run("op="+name, func(b *testing.B) {
			for i := range b.N {
				require.NoError(b, op(i))
			}
		})
	}
}
