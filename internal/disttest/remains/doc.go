// Package remains tests that nothing of a job is left behind, however it ended: no process, socket,
// file or shared memory. Agents and their workers are processes of their own, and killed.
package remains
