// Package ballot is one worker's part in agreeing on the next generation of a group: a state
// machine without I/O, clock or goroutine.
//
// Members say whom they cannot go on with and whom they want to take in, each in messages that
// replace one another. Who knows that all who are to go on have come proposes them to the job's
// store, which takes one proposal for a generation, the first. So members may differ in what they
// know, and proposals may differ; what the store holds does not. Then each founds the new
// generation, and waits until the others have done so or are lost.
//
// Who cannot reach one another cannot both go on. Of a broken pair the one goes that more of the
// others cannot reach, or else the later one. A newcomer proposes nothing, and goes before a member
// does. Less than half of a group, but for those who have said goodbye, waits before it proposes,
// so that one that is cut off does not take the group from all others.
//
// A Ballot is not safe for concurrent use.
package ballot
