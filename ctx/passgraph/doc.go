// Package passgraph is the graph of a distributed pass as data, and its pictures: what every worker
// recorded, and which messages went between them.
//
// Each worker describes its part as a [Worker]; [Merge] checks the parts and puts them together.
// [Graph.WriteDOT] writes Graphviz' language, [Graph.WriteSVG] a picture of its own making: a lane
// for each worker, data flowing downwards, a message wherever a line leaves its lane. The same
// graph always gives the same bytes.
//
// Parts may come from the network: [Worker.Bound] makes a part fit the limits below, [Worker.Check]
// refuses one that does not, with an error that matches [ErrPart]. All texts are made printable
// before they are drawn. Everything here is a value or a function of values; nothing is shared, and
// nothing runs on after its call.
package passgraph
