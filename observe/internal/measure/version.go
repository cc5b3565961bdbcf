package measure

import "runtime/debug"

// module is the path of etcdkit's module.
const module = "github.com/etcdkit/etcdkit"

// Version returns the version of etcdkit in this program, or "" if it was built from a working copy.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return versionIn(info)
}

// versionIn is Version of a program.
func versionIn(info *debug.BuildInfo) string {
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == module && m.Version != "(devel)" {
			return m.Version
		}
	}
	return ""
}
