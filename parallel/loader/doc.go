// Package loader reads what a rank trains on, beside the training.
//
// A [Source] is rows that can be read in any order: a CSV file ([OpenCSV]), a file of tokens
// ([OpenTokens]), or anything that has a number of rows and a function that reads one ([Func]). A
// [Loader] reads the rows that [parallel.Rows] gives this rank, step by step, makes a batch of
// them, and keeps some batches ahead.
//
// # Position
//
// The position is a step number, and nothing else. Whoever goes on at step 700, with other ranks or
// more of them, makes a loader with Config.First 700: together the ranks read the rows that they
// would have read.
//
// # Who owns what
//
// A batch is the caller's. A loader holds Config.Ahead batches at most, and one more while Next
// waits for it; it reads no further. Close ends what it has begun, and waits for it; it does not
// close the source.
//
// # Concurrency and failures
//
// Sources are read from several goroutines at once. Next is called by one goroutine at a time;
// Close by any. What cannot be read is an [Error] of the step and the row; what is wrong with a
// file is in it a [FileError], which names the file and the line. It ends the loader: Next gives it
// from then on. A panic in a source or a batch is such an error, too.
package loader
