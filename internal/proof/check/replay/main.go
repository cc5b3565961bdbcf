// Replay judges a recorded history again.
//
//	make chaos-replay FILE=…/history.jsonl
//
// It prints the verdict and exits with 0 if that is green. With -o it also writes
// the verdict, the tap and the pictures to a new folder below the one named.
// Several files, of several processes of one host, make one history.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

func main() {
	out := flag.String("o", "", "write verdict, tap and pictures to a new folder below this one")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: replay [-o folder] history.jsonl ...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	verdict, err := replay(*out, flag.Args()...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(2)
	}
	if verdict != check.Green {
		os.Exit(1)
	}
}

func replay(out string, files ...string) (check.Verdict, error) {
	h, err := history.ReadFiles(files...)
	if err != nil {
		return "", err
	}
	checkers, err := check.Suite(h)
	if err != nil {
		return "", err
	}
	report := check.Judge(h, checkers...)
	fmt.Print(report)
	if out != "" {
		if _, err := report.Save(out, h, checkers...); err != nil {
			return "", err
		}
		fmt.Println("written to", out)
	}
	return report.Verdict, nil
}
