package build

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// The version of etcdkit is that of the module, as the main one or as a dependency, and none for a working copy. A replaced
// module has the version of what replaces it, and none if that is a folder.
func TestVersions(t *testing.T) {
	t.Parallel()
	shop := debug.Module{Path: "example.com/shop", Version: "v7.0.0"}
	program := func(etcdkit debug.Module) *debug.BuildInfo {
		return &debug.BuildInfo{Main: shop, Deps: []*debug.Module{{Path: "x", Version: "v1.0.0"}, &etcdkit}}
	}
	for name, c := range map[string]struct {
		want Versions
		info *debug.BuildInfo
	}{
		"dependency":   {Versions{"v0.1.0", "example.com/shop@v7.0.0"}, program(debug.Module{Path: module, Version: "v0.1.0"})},
		"main module":  {Versions{"v0.2.0", ""}, &debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.2.0"}}},
		"working copy": {Versions{}, &debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}},
		"no module":    {Versions{}, &debug.BuildInfo{}},
		"shop from a folder": {Versions{"v0.1.0", ""}, &debug.BuildInfo{
			Main: debug.Module{Path: "example.com/shop", Version: "(devel)"}, Deps: []*debug.Module{{Path: module, Version: "v0.1.0"}}}},
		"replaced by a folder": {Versions{"", "example.com/shop@v7.0.0"}, program(debug.Module{
			Path: module, Version: "v0.1.0", Replace: &debug.Module{Path: "../etcdkit"}})},
		"replaced by a fork": {Versions{"example.com/fork@v0.1.1", "example.com/shop@v7.0.0"}, program(debug.Module{
			Path: module, Version: "v0.1.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v0.1.1"}})},
	} {
		require.Equal(t, c.want, of(c.info), name)
	}
}
