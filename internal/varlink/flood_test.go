//go:build !race

package varlink

const floodFrameCount = 100_000
