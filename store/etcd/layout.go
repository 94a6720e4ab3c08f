package etcd

import (
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// layout says under which keys of etcd the store's things lie, by the prefix of them all. Keys of
// the store are any bytes; none can be taken for a part of another's name.
type layout string

func (l layout) values() string          { return string(l) + "/v/" }
func (l layout) value(key string) string { return l.values() + key }

// items is what all that is in a queue starts with. The key's length keeps apart queues of which
// one's key continues the other's.
func (l layout) items(key string) string {
	return string(l) + "/q/" + strconv.Itoa(len(key)) + "/" + key + "/"
}

func (l layout) item(key string, n uint64) string { return fmt.Sprintf("%s%016x", l.items(key), n) }
func (l layout) tail(key string) string           { return string(l) + "/t/" + key }

func (l layout) receipt(lease clientv3.LeaseID, n int) string {
	return fmt.Sprintf("%s/r/%x/%d", string(l), int64(lease), n)
}

// valueKey is the inverse of value.
func (l layout) valueKey(name []byte) string { return strings.TrimPrefix(string(name), l.values()) }
