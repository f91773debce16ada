//go:build race

package varlink

const floodFrameCount = 20_000
