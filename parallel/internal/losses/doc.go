// Package losses weights the losses of ranks by their rows, so that gradients which are summed over
// ranks are of the mean over all rows. Packages below parallel share it.
package losses
