// Package elastic is the worker's side of a job whose workers come and go.
//
// An agent starts the workers and watches them: "weft run", or a program that calls agent.Run. A
// worker calls Join to learn its place: its rank, how many workers there are, and the store in
// which they meet. When the workers become others, because one was lost, replaced or added, the
// agent tells each its new place, and [Place.Over] of the old one is closed. Such a worker forms
// its world anew and goes on without being started again; [Membership.Each] is the loop for that.
// Under torchrun, Join reads the place from the environment, and the place never changes.
//
// A program that does not call Join works, too. Its agent starts it again when the nodes become
// others, as torchrun does.
//
// [WriteError] says in a worker's error file why it fails, as PyTorch's @record does. Package
// elastic/checkpoint saves what the workers have learnt.
//
// The variables of torchrun (RANK, WORLD_SIZE, MASTER_ADDR and others) are set for each worker.
// TORCHELASTIC_RESTART_COUNT counts starts of the whole group, as torch takes it, and
// [RestartsVariable] those of single workers, too.
package elastic
