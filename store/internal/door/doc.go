// Package door decides who may hold one of a server's places when more come than there are.
//
// Who has just come has proved nothing, and is there on sufferance: when the places run out, the
// oldest of those makes room. It is one of the newcomer's own account, if that has as many of them
// as others have on average, and else the oldest of all. So a crowd from one account turns away its
// own, and who proves within moments what it is gets in. What counts as a proof the server says.
// Places are kept for those who prove to be members.
//
// A [Door] does no I/O and reads no clock. Its owner calls it under a lock.
package door
