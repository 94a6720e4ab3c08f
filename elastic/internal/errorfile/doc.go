// Package errorfile reads and writes the file in which a worker says why it fails.
//
// The agent names a file to each worker ($TORCHELASTIC_ERROR_FILE). The worker writes its error
// there in the format of PyTorch's @record, and the agent reads it when the worker has failed.
// Where the agent keeps no log files, and on Linux, the file is memory without a name in any
// folder, so that nothing is left of it when the agent is killed.
package errorfile
