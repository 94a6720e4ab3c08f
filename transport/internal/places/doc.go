// Package places bounds how many may be about to prove who they are. It is pure: the time comes in.
//
// Every host, or process, has an account. When all places are taken, a newcomer takes the place of
// the oldest in the account that holds the most. So a flood from one account harms that account
// alone.
package places
