package main

func Example() {
	main()
	// Output:
	// A migrates
	// B does not: the lock is taken
	// B migrates, with a greater token: true
}
