//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "runbook: it runs on Linux only")
	os.Exit(1)
}
