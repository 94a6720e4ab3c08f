package program

// Optimize rewrites a unit in place.
func Optimize(u *Unit) {}
