// Package proctest starts the test binary again as another process of a test, and talks with it.
//
// A test's TestMain calls [Main] with the commands that its other processes understand; Main does
// not return in such a process. [Start] starts one, and [Proc.Ask] has it run a command: arguments
// and results are JSON over its standard input and output, and any number of commands may be under
// way. The process ends when its standard input does, be it because the test died. Start ends it,
// and waits for it, at the end of the test.
//
// A Proc is safe for concurrent use.
package proctest
