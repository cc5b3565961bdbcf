package main

import (
	"os"
	"slices"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
)

func TestLeft(t *testing.T) {
	etcd := embedtest.Start(t, nil)
	if etcd.External() {
		t.Skip("others are at work on the external cluster")
	}
	if err := left(t.Context(), etcd.Client()); err != nil {
		t.Error(err)
	}
	if _, err := etcd.Client().Put(t.Context(), "k", ""); err != nil {
		t.Fatal(err)
	}
	if err := left(t.Context(), etcd.Client()); err == nil {
		t.Error("a key that is left behind is not reported")
	}
}

func TestLines(t *testing.T) {
	got, err := lines(os.DirFS("."))
	if want := []string{"etcd35", "etcd36", "etcd37"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("lines %q, %v; want %q", got, err, want)
	}
}
