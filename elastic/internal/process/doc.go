// Package process runs the processes of workers and ends them whole.
//
// Each worker leads a process group of its own. When it ends, what it has left in that group is
// killed, before the system can give the group's number to another. On Linux a worker also dies
// with the thread that started it, so that none outlives a killed agent.
//
// Two goroutines read the worker's output until it ends, or until Drain after the worker's end
// where a process that left the group still holds the output open. Orphans kills those processes,
// too, where this process inherits them.
package process
