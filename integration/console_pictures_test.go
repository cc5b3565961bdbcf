package integration

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// picture is one of docs/images.
type picture struct {
	name, path    string
	width, height int64
	dark          bool
}

// TestConsolePictures takes the pictures of docs/images, of a demo that has run for some minutes, and each page at three widths,
// light and dark, to be looked at. It changes the limit of a semaphore there, and pauses and resumes a job, so that there are changes to show.
//
//	make demo-console ARGS="-listen 127.0.0.1:8080"
//	CONSOLE_URL=http://127.0.0.1:8080/ CONSOLE_SHOTS=$PWD/out go -C integration test -run TestConsolePictures .
func TestConsolePictures(t *testing.T) {
	at, dir := os.Getenv("CONSOLE_URL"), os.Getenv("CONSOLE_SHOTS")
	if at == "" || dir == "" {
		t.Skip("CONSOLE_URL or CONSOLE_SHOTS is not set: pictures are taken of a demo that runs")
	}
	b := newTab(t)
	b.url = at
	for _, action := range [][4]string{
		{"do=set-limit&name=semaphore/charge", "semaphore/charge", "5", "the provider has raised our quota"},
		{"do=set-limit&name=semaphore/charge", "semaphore/charge", "3", "the provider is slow: back to 3"},
		{"do=pause&name=cleanup", "cleanup", "", "the disk is being replaced"},
		{"do=resume&name=cleanup", "cleanup", "", "the disk is replaced"},
	} {
		b.open("confirm?" + action[0])
		if action[2] != "" {
			b.do(chromedp.SetValue("form [name=value]", action[2], chromedp.ByQuery))
		}
		b.do(chromedp.SetValue("form.act [name=reason]", action[3], chromedp.ByQuery), chromedp.SendKeys("input[name=confirm]", action[1]+"\r", chromedp.ByQuery), chromedp.WaitVisible(".done", chromedp.ByQuery))
	}
	b.open("sessions")
	process := strings.Trim(b.eval(`[...document.querySelectorAll("main td code")].map(e => e.innerText)[1]`), `"`)
	b.open("queue?name=election/shard-7") // whose leader leads for a while
	token := strings.Trim(b.eval(`document.querySelector(".copied").innerText`), `"`)
	pictures := []picture{
		{"confirm", "confirm?do=evict&name=election/shard-7&target=" + token, 1200, 900, false},
		{"overview", "", 1200, 720, false}, {"queue", "queue?name=semaphore/charge", 1400, 860, false}, {"queue-dark", "queue?name=semaphore/charge", 1400, 660, true},
		{"queue-phone", "queue?name=semaphore/charge", 390, 1000, false}, {"limiter", "queue?name=limiter/api", 1400, 760, false}, {"job", "job?name=cleanup", 1400, 700, false},
		{"process", "process?name=" + process, 1200, 760, false}, {"search", "search?q=web-2", 1200, 700, false}, {"changes", "changes", 1200, 440, false},
		{"doctor", "doctor", 1200, 700, false},
	}
	take := func(p picture, folder string) {
		scheme := map[bool]string{true: "dark", false: "light"}[p.dark]
		b.do(chromedp.EmulateViewport(p.width, p.height), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
		if err := chromedp.Run(b.ctx, chromedp.Navigate(b.url+p.path), chromedp.WaitVisible("h1", chromedp.ByQuery)); err != nil {
			t.Error(p.path, err)
		}
		var png []byte
		b.do(chromedp.CaptureScreenshot(&png))
		require.NoError(t, os.MkdirAll(filepath.Join(dir, folder), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, folder, "console-"+p.name+".png"), png, 0o600))
	}
	for _, p := range pictures {
		take(p, "")
	}
	all := []picture{{name: "queues", path: "queues"}, {name: "elections", path: "elections"}, {name: "jobs", path: "jobs"}, {name: "stores", path: "stores"}, {name: "store", path: "store?name=orders"},
		{name: "sessions", path: "sessions"}, {name: "bulk", path: "bulk?do=resolve&store=orders&only=refused"}, {name: "missing", path: "nowhere"}}
	for _, p := range pictures {
		if p.width > 390 && !p.dark { // the others are the same pages
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b picture) int { return cmp.Compare(b.width, a.width) }) // those of docs/images first
	for _, width := range []int64{900, 390, 1400} {
		for _, dark := range []bool{false, true} {
			for _, p := range all {
				p.width, p.height, p.dark = width, 2000, dark // a hundred cards on a phone are more than a browser paints
				take(p, map[int64]string{390: "phone", 900: "tablet", 1400: "wide"}[width]+map[bool]string{true: "-dark"}[dark])
			}
		}
	}
}
