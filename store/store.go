package store

import (
	"context"
)

// Store is a map from keys to values, shared by the workers of a job, on whose keys one can wait.
//
// The package comment says what holds for all methods of all stores: atomicity, deadlines,
// ownership, errors.
type Store interface {
	// Set stores value under key, whether or not there was one.
	Set(c context.Context, key string, value []byte) error

	// Get waits until key exists and returns its value, which is never nil.
	Get(c context.Context, key string) ([]byte, error)

	// Add adds delta to the decimal number under key, a missing key counting as 0, and returns the
	// sum. As in PyTorch, blanks before the number and anything after it are ignored, and the sum
	// wraps around. A value that starts with no number is left alone: ErrNotANumber.
	Add(c context.Context, key string, delta int64) (int64, error)

	// CompareSet stores desired if the value under key equals expected, a missing key being equal
	// to the empty value. It returns the value that is there afterwards, except, as in PyTorch, for
	// a missing key of which a non-empty value was expected: nothing is stored, and the answer is
	// expected. A caller that asks for desired != expected has therefore succeeded exactly if it
	// gets desired back.
	CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error)

	// Delete removes key and says whether it was there. Waiters are not affected.
	Delete(c context.Context, key string) (bool, error)

	// Check says whether all keys exist; of no keys that is true.
	Check(c context.Context, keys ...string) (bool, error)

	// Wait returns when all keys exist; with no keys, at once.
	Wait(c context.Context, keys ...string) error

	// NumKeys is the number of keys in the whole store, those of other prefixes and of the protocol
	// included, and queues not.
	NumKeys(c context.Context) (int64, error)

	// ListKeys returns the keys that have values, sorted: those under the prefix of a Prefix, and
	// none of the protocol's.
	ListKeys(c context.Context) ([]string, error)

	// Append adds value to the end of what key has; a missing key has nothing.
	Append(c context.Context, key string, value []byte) error

	// MultiGet waits until all keys exist and returns their values in the order of keys, as they
	// were at one moment.
	MultiGet(c context.Context, keys ...string) ([][]byte, error)

	// MultiSet stores all pairs or none, in their order: of a repeated key the last value stays.
	MultiSet(c context.Context, pairs ...Pair) error

	// Push adds value to the end of the queue key. Queues and values have their keys apart: a key
	// may have both. Wait and Check take either for the key's existence.
	Push(c context.Context, key string, value []byte) error

	// Pop waits until the queue key has something and takes the oldest. What is pushed goes to one
	// Pop exactly.
	Pop(c context.Context, key string) ([]byte, error)

	// TryPop is Pop without waiting; it says whether there was anything.
	TryPop(c context.Context, key string) (value []byte, ok bool, err error)

	// Len is the number of values in the queue key.
	Len(c context.Context, key string) (int64, error)

	// Barrier returns when it has been called with key world times, by whichever clients. A key
	// serves one barrier: later calls return at once. Arriving counts also if the waiting for the
	// others fails. The count lies under key, as in PyTorch. A world of 0 or less waits for nobody.
	Barrier(c context.Context, key string, world int) error

	// Watch delivers every change of key from when it returns until c is over or the Watch is
	// stopped; c bounds the Watch's life. The store's own timeout bounds nothing but its beginning.
	Watch(c context.Context, key string) (*Watch, error)

	// Close ends the use of the store by this client: calls in progress and later ones fail with
	// ErrClosed. It does not remove keys. Closing twice is no error.
	Close() error
}
