//go:build !linux

// Referee runs on Linux only.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "referee: it runs on Linux only")
	os.Exit(2)
}
