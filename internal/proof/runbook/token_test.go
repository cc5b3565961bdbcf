package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// A769: a restore gives the cluster the token that its members began with, since etcd computes the ID of a cluster from token and
// peer URLs. The command had none: a cluster with a token of its own came back with another ID, and processes that compare
// IDs of clusters did not start.
func TestRestoreKeepsTheClusterID(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/runbook.md")
	require.NoError(t, err)
	all, err := sections(string(page))
	require.NoError(t, err)
	inFile, inFlag := regexp.MustCompile(`initial-cluster-token: (\S+)`), regexp.MustCompile(`--initial-cluster-token (\S+)`)
	urls := regexp.MustCompile(`(?:initial-cluster: |--initial-cluster )(\S+)`)
	found := map[string][]string{}
	for _, s := range all {
		if s.title == "Members" {
			found[s.title] = []string{inFile.FindStringSubmatch(s.script)[1], urls.FindStringSubmatch(s.script)[1]}
		}
		if s.title == restore {
			require.Regexp(t, inFlag, s.script)
			found[s.title] = []string{inFlag.FindStringSubmatch(s.script)[1], urls.FindStringSubmatch(s.script)[1]}
		}
	}
	require.Len(t, found, 2)
	require.Equal(t, found["Members"], found[restore], "token and peer URLs")
}
