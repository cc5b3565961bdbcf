package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// axe returns the text of axe-core, or skips the test: it is no part of this module.
func axe(t *testing.T) string {
	t.Helper()
	file := os.Getenv("CONSOLE_AXE")
	if file == "" {
		t.Skip("CONSOLE_AXE names no axe.min.js of axe-core: the pages were not examined by it (make browser installs it by npm)")
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// examined is what axe-core has found on a page.
const examined = `axe.run().then(r => JSON.stringify({
  version: axe.version, passes: r.passes.length, unsure: r.incomplete.map(v => v.id),
  violations: r.violations.flatMap(v => v.nodes.map(n => v.id + " (" + v.impact + "): " + n.target.join(" ") + ": " + n.html.slice(0, 160))),
}))`

// Each page has no violation of a rule of axe-core, its best practices included: light and dark, on a phone and on a wide
// screen.
func TestConsoleByAxe(t *testing.T) {
	script := axe(t)
	b := openTab(t)
	c := stock(b)
	lim, err := concurrency.NewKeyedLimiter(c.sess, "api", 5, &concurrency.KeyedLimiterOptions{Total: 20})
	require.NoError(t, err)
	for range 5 {
		_, err = lim.Key("busy").Acquire(t.Context())
		require.NoError(t, err)
	}
	paths := []string{"nowhere", "queue?name=limiter/api/busy", "queues?show=full", "search?q=nothing+of+that", "confirm?do=set-limit&name=semaphore/charge"}
	for path := range c.pages {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	var wrong []string
	version, passes, unsure := "", 0, map[string]int{}
	examine := func(at string) {
		var out string
		b.do(chromedp.Evaluate(script, nil), chromedp.Evaluate(examined, &out, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
		var found struct {
			Version            string
			Passes             int
			Unsure, Violations []string
		}
		require.NoError(t, json.Unmarshal([]byte(out), &found))
		version, passes = found.Version, passes+found.Passes
		for _, rule := range found.Unsure {
			unsure[rule]++
		}
		for _, v := range found.Violations {
			wrong = append(wrong, at+": "+v)
		}
	}
	for _, width := range []int64{390, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			look := fmt.Sprintf("%d wide, %s", width, scheme)
			b.do(chromedp.EmulateViewport(width, 900), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			for _, path := range paths {
				b.open(path)
				examine(path + ", " + look)
			}
			// A form that was filled in wrongly, what an action has done, and the list that has it.
			b.open("confirm?do=set-limit&name=semaphore/charge")
			b.do(chromedp.SetValue("input[name=value]", "2", chromedp.ByQuery), chromedp.SetValue("form.act [name=reason]", "load", chromedp.ByQuery), chromedp.SendKeys("input[name=confirm]", "semaphore/chagre\r", chromedp.ByQuery), chromedp.WaitVisible("[role=alert]", chromedp.ByQuery))
			examine("the form again, " + look)
			b.open("confirm?do=set-limit&name=semaphore/charge")
			b.do(chromedp.SetValue("input[name=value]", "2", chromedp.ByQuery), chromedp.SetValue("form.act [name=reason]", "load", chromedp.ByQuery), chromedp.SendKeys("input[name=confirm]", "semaphore/charge\r", chromedp.ByQuery), chromedp.WaitVisible(".done", chromedp.ByQuery))
			examine("what was done, " + look)
			b.open("changes")
			b.shows("set-limit")
			examine("the changes, " + look)
		}
	}
	t.Logf("axe-core %s: %d pages and three answers, each light and dark, 390 and 1280 wide; %d rules were kept; not decided: %v", version, len(paths), passes, unsure)
	require.Empty(t, wrong)
	b.do(chromedp.Evaluate(`document.documentElement.removeAttribute("lang")`, nil))
	examine("a page without a language")
	require.NotEmpty(t, wrong, "the examination can fail")
}
