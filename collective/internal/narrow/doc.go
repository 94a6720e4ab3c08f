// Package narrow writes float32 in fewer bits, and folds what is written so. It is pure.
//
// A [Form] cuts an array into blocks of [Block] elements, of which the last may be shorter, and
// writes each on its own. So a part of an array that begins at a block can be read alone.
//
// Rounding is to the nearest. What it takes away is given back to the caller, who adds it to what
// it writes next (error feedback; Seide, Fu, Droppo, Li and Yu, 2014): over many arrays nothing is
// lost, only late.
package narrow
