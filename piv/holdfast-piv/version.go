package main

import (
	"runtime"
	"runtime/debug"
)

// version is set by the build: -ldflags "-X main.version=v0.1.0".
var version string

// fullVersion returns the release or commit, and the version of Go.
func fullVersion() string {
	v := version
	if info, ok := debug.ReadBuildInfo(); ok && v == "" {
		v = info.Main.Version
	}
	return v + " (" + runtime.Version() + ")"
}
