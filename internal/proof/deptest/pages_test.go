package deptest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	namedTest = regexp.MustCompile("`(?:(\\w+)\\.)?((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
	link      = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)]*))?\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced    = regexp.MustCompile("(?ms)^```.*?^```$")
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	lastRuns  = regexp.MustCompile(`(?s)<!-- last runs -->\n\| part \| day \(UTC\) \| commit \| result \|\n\|[-|]+\|\n(.*)<!-- end of last runs -->`)
	lastRun   = regexp.MustCompile("^\\| `([a-z0-9-]+)` \\| 20\\d\\d-\\d\\d-\\d\\d \\| [0-9a-f]{7}[^|]* \\| [^|]+ \\|$")
)

// pages returns the documents of the repository by their paths.
func pages(t *testing.T) map[string]string {
	t.Helper()
	root, all := os.DirFS("../../.."), map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/design/*.md", "docs/model/*.md", "docs/benchmarks/README.md", "internal/proof/*.md", "examples/*/README.md", "examples/quickstart/*/README.md", "demos/*.md", "demos/*/README.md"} {
		names, err := fs.Glob(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			doc, err := fs.ReadFile(root, name)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(doc)
		}
	}
	return all
}

// anchors returns the names by which links reach the headings of a document, as GitHub makes
// them.
func anchors(doc string) map[string]bool {
	names := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(doc, ""), -1) {
		slug := strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		name := slug
		for n := 1; names[name]; n++ {
			name = fmt.Sprintf("%s-%d", slug, n)
		}
		names[name] = true
	}
	return names
}

// docBreaches checks that the tests that a document names exist, and that its
// links to files of the repository, and to headings in its documents, lead somewhere.
func docBreaches(name, doc string, tests map[string]bool, root fs.FS) (found []string) {
	for _, m := range namedTest.FindAllStringSubmatch(doc, -1) {
		if m[2] == "TestName" {
			continue // stands for any
		}
		exists := m[1] != "" && tests[m[1]+"."+m[2]]
		for test := range tests {
			exists = exists || m[1] == "" && strings.HasSuffix(test, "."+m[2])
		}
		if !exists {
			found = append(found, name+": there is no test "+strings.Trim(m[0], "`"))
		}
	}
	for _, m := range link.FindAllStringSubmatch(doc, -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		to, target := path.Join(path.Dir(name), m[1]), doc
		if m[1] != "" {
			if _, err := fs.Stat(root, to); err != nil {
				found = append(found, name+": the link to "+m[1]+" leads nowhere")
				continue
			}
			text, _ := fs.ReadFile(root, to)
			target = string(text)
		}
		if m[2] != "" && !anchors(target)[m[2]] {
			found = append(found, name+": no heading is "+m[1]+"#"+m[2])
		}
	}
	return found
}

// TestDocs holds all documents to what they point at.
func TestDocs(t *testing.T) {
	tests := allTests(t)
	for name, doc := range pages(t) {
		for _, breach := range docBreaches(name, doc, tests, os.DirFS("../../..")) {
			t.Error(breach)
		}
	}
}

// TestDocsFail shows that a name or link that leads nowhere is found out.
func TestDocsFail(t *testing.T) {
	root := fstest.MapFS{"docs/a.md": &fstest.MapFile{Data: []byte("# A\n## G4: time, `x`\n## B\n")}, "README.md": &fstest.MapFile{}}
	tests := map[string]bool{"queue.TestFront": true}
	for doc, breaches := range map[string]int{
		"`TestFront`, `queue.TestFront`, [a](a.md#b), [r](../README.md), [x](https://example.org#y)": 0,
		"[a](a.md#g4-time-x)":                        0,
		"## Here\n[c](#here)\n## Here\n[d](#here-1)": 0,
		"`TestBack`":                     1,
		"`lease.TestFront`":              1,
		"[b](b.md)":                      1,
		"[b](b.md#b)":                    1,
		"[a](a.md#c)":                    1,
		"[c](#here)":                     1,
		"```sh\n# here\n```\n[c](#here)": 1,
	} {
		if got := docBreaches("docs/a.md", doc, tests, root); len(got) != breaches {
			t.Errorf("%q: breaches %q, want %d", doc, got, breaches)
		}
	}
}

// indexBreaches compares an index with the pages: one line for each.
func indexBreaches(index string, pages []string) (found []string) {
	for _, page := range pages {
		if n := strings.Count(index, "\n| ["+page+"]("+page+") | "); n != 1 {
			found = append(found, fmt.Sprintf("%s has %d lines, want one", page, n))
		}
	}
	return found
}

// TestIndex holds docs/README.md to the pages beside it.
func TestIndex(t *testing.T) {
	all := pages(t)
	var names []string
	for name := range all {
		if dir, page := path.Split(name); dir == "docs/" && page != "README.md" {
			names = append(names, page)
		}
	}
	for _, breach := range indexBreaches(all["docs/README.md"], names) {
		t.Errorf("docs/README.md: %s", breach)
	}
	if got := indexBreaches("\n| [a.md](a.md) | x |\n| [b.md](b.md) | x |\n| [b.md](b.md) | x |\n", []string{"a.md", "b.md", "c.md"}); len(got) != 2 {
		t.Errorf("breaches %q, want a page twice and a page without a line", got)
	}
}

// lastRunBreaches checks the table that .ci/verify writes: its marks are there, and each line
// has a part of `make verify`, a day, a commit and a result. Each part has a line, so that one that never ran
// is seen.
func lastRunBreaches(doc, parts string) (found []string) {
	table := lastRuns.FindStringSubmatch(doc)
	if table == nil {
		return []string{"the table of last runs, or a mark around it, is missing"}
	}
	without := strings.Fields(parts)
	for line := range strings.Lines(table[1]) {
		m := lastRun.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			found = append(found, fmt.Sprintf("%q is no line of a run: part, day, commit, result", line))
		} else if !strings.Contains(" "+parts+" ", " "+m[1]+" ") {
			found = append(found, m[1]+" is no part of make verify: "+parts)
		} else {
			without = slices.DeleteFunc(without, func(part string) bool { return part == m[1] })
		}
	}
	for _, part := range without {
		found = append(found, "the table of last runs has no line for "+part)
	}
	return found
}

// TestLastRuns holds internal/proof/testing.md to what .ci/verify writes there.
func TestLastRuns(t *testing.T) {
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	parts := regexp.MustCompile(`(?m)^PARTS *\?= (.*)$`).FindStringSubmatch(string(makefile))
	if parts == nil {
		t.Fatal("the Makefile has no PARTS")
	}
	for _, breach := range lastRunBreaches(pages(t)["internal/proof/testing.md"], parts[1]) {
		t.Errorf("internal/proof/testing.md: %s", breach)
	}
}

// TestLastRunsFail shows that a line that says too little is found out.
func TestLastRunsFail(t *testing.T) {
	const head, end = "<!-- last runs -->\n| part | day (UTC) | commit | result |\n|---|---|---|---|\n", "<!-- end of last runs -->\n"
	for doc, breaches := range map[string]int{
		head + "| `race` | 2026-11-22 | 90c2a43 and changes | green, 7 s |\n" + end: 0,
		head + end: 1, // race has no line
		"":         1,
		head:       1,
		head + "| `race` | yesterday | 90c2a43 | green |\n" + end:  2,
		head + "| `race` | 2026-11-22 | 90c2a43 | |\n" + end:       2,
		head + "| `sing` | 2026-11-22 | 90c2a43 | green |\n" + end: 2,
	} {
		if got := lastRunBreaches(doc, "race"); len(got) != breaches {
			t.Errorf("%q: breaches %q, want %d", doc, got, breaches)
		}
	}
}
