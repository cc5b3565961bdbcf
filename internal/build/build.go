// Package build reports the versions of what this program was built from.
package build

import (
	"runtime/debug"
	"sync"
)

// module is the path of etcdkit's module.
const module = "github.com/etcdkit/etcdkit"

// Versions are those of a program. Each is "" if it is not known, as in a build from a folder without a commit.
type Versions struct {
	Etcdkit string // of the library
	Program string // of the main module, with its path; "" if that is etcdkit
}

// Current returns the versions of this program.
var Current = sync.OnceValue(func() Versions {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Versions{}
	}
	return of(info)
})

// of returns the versions that are in a build info.
func of(info *debug.BuildInfo) (v Versions) {
	if info.Main.Path == module {
		v.Etcdkit = known(info.Main.Version)
		return v
	}
	if version := known(info.Main.Version); version != "" {
		v.Program = info.Main.Path + "@" + version
	}
	for _, m := range info.Deps {
		if m.Path != module {
			continue
		}
		switch {
		case m.Replace == nil:
			v.Etcdkit = known(m.Version)
		case known(m.Replace.Version) != "": // else a folder: m.Version is that of another copy
			v.Etcdkit = m.Replace.Path + "@" + m.Replace.Version
		}
	}
	return v
}

// known returns a version, or "" for that of a build without one.
func known(version string) string {
	if version == "(devel)" {
		return ""
	}
	return version
}
