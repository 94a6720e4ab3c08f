// Package journal is a file to which records are appended, and from which they come back after a
// crash, in their order.
//
// A [Journal] knows nothing of what is in a record. [Open] gives the owner every record of an
// earlier life; [Journal.Append] takes one more and [Journal.Commit] says when it is safe;
// [Journal.Compact] puts a snapshot in the place of all records so far.
//
// # Contract
//
// What Commit has said of a record holds after a crash of this process, whatever the [Policy], and
// after a crash of the machine if the policy is [Always]: the record, and all before it, are
// replayed. A record that was appended and not committed is replayed or not; if not, none after it
// is.
//
// Callers of Commit that wait at the same time share one write and one fsync.
//
// An error of the file system is final: what was appended can no longer be made safe, so from then
// on every Commit of a record that was not yet safe fails with that error. Only opening the file
// again tells what is in it. A compaction that fails before it takes effect harms nothing.
//
// One Journal has a file at a time, by a lock on it: the next one gets [ErrLocked].
//
// A Journal is safe for concurrent use. It has no goroutine of its own but for a timer where the
// policy is an interval; nothing calls the owner back but replay within Open and the snapshot
// within Compact.
//
// # The file
//
// The file begins with eight bytes that name its format, eight random ones, its salt, and their
// CRC-32C. Frames follow, one per write: the length of the payload, its CRC-32C, a CRC-32C over the
// salt, the frame's offset in the file, the length and the former, and the payload: records, each
// with its length before it. Lengths and sums are u32, little-endian. The salt and the offset make
// bytes that look like a frame, left over on the disk or put into a record, no frame here.
//
// Where the bytes are no frame and nothing after them is one, a write was cut off by a crash: they
// are removed, with a line in the log. Where a frame follows, the file was damaged: a
// [CorruptError] says where. (With another policy than [Always] a crash of the machine may do such
// damage too, on a file system that writes later bytes before earlier ones.)
package journal
