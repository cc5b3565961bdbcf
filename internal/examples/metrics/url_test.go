package metrics

import (
	"net"
	"testing"
)

func TestURL(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"127.0.0.1:9464": "http://127.0.0.1:9464/metrics",
		"[::]:9464":      "http://localhost:9464/metrics",
		"0.0.0.0:9464":   "http://localhost:9464/metrics",
		"[::1]:9464":     "http://[::1]:9464/metrics",
	} {
		tcp, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := address(tcp); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}
