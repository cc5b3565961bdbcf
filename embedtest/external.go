package embedtest

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
)

func uniquePrefix(name string) string {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	return "/embedtest/" + name + "-" + hex.EncodeToString(id[:]) + "/"
}

func externalEndpoints() []string {
	var eps []string
	for ep := range strings.SplitSeq(os.Getenv("EMBEDTEST_ENDPOINTS"), ",") {
		if ep = strings.TrimSpace(ep); ep != "" {
			eps = append(eps, ep)
		}
	}
	return eps
}
