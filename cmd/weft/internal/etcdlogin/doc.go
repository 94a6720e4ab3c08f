// Package etcdlogin reads the user and the password for etcd, from an endpoint, a file or the
// environment. It refuses a password on a command line, which all users of a host can read.
package etcdlogin
