package main

import (
	"os"
	"slices"
	"testing"
)

func TestLines(t *testing.T) {
	got, err := lines(os.DirFS("."))
	if want := []string{"etcd35", "etcd36", "etcd37"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("lines %q, %v; want %q", got, err, want)
	}
}
