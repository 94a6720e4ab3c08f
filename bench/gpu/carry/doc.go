// Command carry says how much must be carried to a machine that is lent with a GPU, and fails where
// that is more than can be: make gpu-bundle ends with it.
//
//	carry [-limit 55] BUNDLE FOLDER
//
// BUNDLE is the packed file and FOLDER what it was made of. With the bundle goes the tree of the
// repository that carry is started in: what git knows and what it does not ignore.
package main
