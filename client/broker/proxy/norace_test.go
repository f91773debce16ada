//go:build !race

package proxy

// raceDetector says that memory is several times what it would be.
const raceDetector = false
