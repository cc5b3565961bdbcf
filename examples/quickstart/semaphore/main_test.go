package main

func Example() {
	main()
	// Output: 10 of 10 rendered, at most 3 at a time
}
