// Package checkpoint keeps the tensors of a job on disk, so that the newest whole set can be had
// again whatever happened meanwhile, by as many workers as there are then.
//
// A checkpoint is a folder with one file of safetensors for each worker, which holds what that
// worker has: tensors, or rows of tensors that are cut along their first dimension. When all
// workers have written theirs, the first of them writes the manifest; a folder without one does not
// count. Files are written under another name, brought to the disk (fsync) and renamed, the
// manifest last, so a checkpoint is whole or not there. The manifest holds the checksums of every
// tensor, of the files' headers, and of itself: a file that was cut or changed afterwards,
// anywhere, is refused by its name ([ErrCorrupt]) when what was changed is read. Workers that read
// different parts then tell each other, and go on with the next of [Dir.Steps].
//
// [OpenFile] reads a file of safetensors that others have written.
//
// The folder must be one that all workers see, on one machine or a shared file system, and their
// user's: what is made has mode 0700, files 0600, and [Open] refuses a folder to which others may
// write, a group, too. Who reads one trusts whoever may write there with the weights: checksums
// show damage, not intent. A shard is read from its checkpoint's folder alone, whatever the
// manifest or a link says. Workers meet in a [store.Store]; give them a view of it with a prefix of
// its own for each round of the job, so that nobody waits for one that is gone.
//
// A [Dir] is safe for concurrent use. What is given to Save is read until it returns, and copied by
// Start before that returns.
package checkpoint
