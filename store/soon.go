package store

import "context"

// What is being built: each method moves to its store's own file.

func (*Client) ListKeys(context.Context) ([]string, error)            { return nil, ErrUnsupported }
func (*Client) Append(context.Context, string, []byte) error          { return ErrUnsupported }
func (*Client) MultiGet(context.Context, ...string) ([][]byte, error) { return nil, ErrUnsupported }
func (*Client) MultiSet(context.Context, ...Pair) error               { return ErrUnsupported }
func (*Client) Push(context.Context, string, []byte) error            { return ErrUnsupported }
func (*Client) Pop(context.Context, string) ([]byte, error)           { return nil, ErrUnsupported }
func (*Client) TryPop(context.Context, string) ([]byte, bool, error) {
	return nil, false, ErrUnsupported
}
func (*Client) Len(context.Context, string) (int64, error)    { return 0, ErrUnsupported }
func (*Client) Barrier(context.Context, string, int) error    { return ErrUnsupported }
func (*Client) Watch(context.Context, string) (*Watch, error) { return nil, ErrUnsupported }
