package embedtest

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv("EMBEDTEST_TEST_RUN") == "" {
		Main(m)
	}
	// A goroutine that runs before Run is not a leak: the caller stops it afterwards.
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() { defer close(stopped); <-stop }()
	code := Run(m, os.Getenv("EMBEDTEST_TEST_RUN"))
	close(stop)
	<-stopped
	fmt.Println("the caller's own teardown")
	os.Exit(code)
}

func leakOne() { time.Sleep(time.Hour) }

func leakAnother() { time.Sleep(time.Hour) }
