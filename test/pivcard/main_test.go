package pivcard

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a rig has left something running.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
