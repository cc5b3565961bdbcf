package stored

import (
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

var (
	recordVersion = flag.String("record", "", "write the records of a full run as those of this version, such as 0.1.0")
	recordTo      = flag.String("record-to", "", "write the records of a full run into this file")
	readFrom      = flag.String("read", "", "read the records in this file, which -record-to of another version has written")
)

// recordsOf is the file with the records of a version.
func recordsOf(version string) string { return filepath.Join("testdata", version, "records.jsonl") }

// TestRecord writes the golden records of a release, once: `make golden-records VERSION=0.1.0`.
func TestRecord(t *testing.T) {
	if *recordVersion == "" && *recordTo == "" {
		t.Skip("it writes golden records only with -record or -record-to")
	}
	name := cmp.Or(*recordTo, recordsOf(*recordVersion))
	require.NoFileExists(t, name, "the records of a release are made once")
	var b strings.Builder
	for _, w := range fullRun(t, own(t)) {
		line, err := json.Marshal(w)
		require.NoError(t, err)
		b.Write(append(line, '\n'))
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755)) //nolint:gosec // a folder of the repository
	require.NoError(t, os.WriteFile(name, []byte(b.String()), 0o644))
}

// TestReadsAFile reads what another version has written with -record-to: `make release-check` has the last release read what this
// tree writes. Keys of a kind that is new there are stored, and not decoded.
func TestReadsAFile(t *testing.T) {
	if *readFrom == "" {
		t.Skip("it reads a file only with -read")
	}
	b, err := os.ReadFile(*readFrom)
	require.NoError(t, err)
	all := decoded(t, b)
	known := slices.DeleteFunc(slices.Clone(all), func(w written) bool {
		return !slices.ContainsFunc(decoders, func(d decoder) bool { return strings.Contains(w.Key, d.part) })
	})
	decodes(t, known, asStored)
	understands(t, reads(t, all, asStored))
}

// golden reads the records of a version.
func golden(t *testing.T, version string) []written {
	t.Helper()
	return Records(t, version)
}

// reader is a program of this release on what another one has stored.
type reader struct {
	f    testkit.Fixture
	sess *concurrency.Session
	put  map[string]string // what was stored, by key below the namespace
}

// reads puts the live ones of records into an etcd, at their revisions and on leases with their numbers, and returns a program
// that reads them. edit changes their values.
func reads(t *testing.T, all []written, edit func(w written) string) reader {
	t.Helper()
	f := own(t)
	r := reader{f: f, put: Put(t, f.Client(), f.Root+"v1/test/", all, edit)}
	r.sess = f.SessionOn(f.Client(), &concurrency.SessionOptions{Owner: "web-9", TTL: 5 * time.Minute})
	return r
}

// asStored leaves a value as it is.
func asStored(w written) string { return w.Value }

// withFields is the value as a later release may write it in the same version: with fields that this one does not know.
func withFields(w written) string {
	return line(w.Value, func(record string) string {
		return strings.TrimSuffix(record, "}") + `,"later":{"of":["a","release"]},"kind":7}`
	})
}

// A195: this release reads what 0.1.0 has stored. From the release of 0.1.0 on this test and its records are never changed:
// see testdata/README.md.
func TestReads010(t *testing.T) {
	t.Parallel()
	decodes(t, golden(t, "0.1.0"), asStored)
	understands(t, reads(t, golden(t, "0.1.0"), asStored))
}

// A195: 0.1.0 reads what a later release stores with fields that 0.1.0 does not know.
func TestReadsFieldsOfLaterReleases(t *testing.T) {
	t.Parallel()
	decodes(t, golden(t, "0.1.0"), withFields)
	r := reads(t, golden(t, "0.1.0"), withFields)
	require.Contains(t, r.put["semaphore/charge/limit"], `"kind":7}`)
	understands(t, r)
}
