// Package private makes and opens the folders and files of a job that nobody else on this host is
// to change: folders get mode 0700, files 0600.
//
// What is there already is used where only its user, root and this process's user could have made
// it what it is. A path is walked from the root of the file system, name by name: a link in it is
// followed if it belongs to one of those users, and what stands at its end must belong to one of
// them, with no right for others to write to it. It is looked at by the descriptor that is used
// then, so nobody can exchange it in between. Who may write to a folder further up can put what is
// in it out of the way, but nothing of his own in its place.
//
// A group's right to write counts as others' unless the group has its user's number: so are groups
// numbered that have one member.
//
// Elsewhere than on Unix nothing is looked at, and modes mean nothing.
package private

import (
	"errors"
	"strings"
)

// ErrOthers is the error for what another user of this host could change, or could have put there.
var ErrOthers = errors.New("others on this host could change it")

// IsName says that a text is the name of something in a folder, and leads nowhere else, on any
// system.
func IsName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\:\x00")
}
