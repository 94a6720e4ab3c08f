package main

func Example() {
	main()
	// Output:
	// 54 <nil>
	// [7 11 9 13] <nil>
}
