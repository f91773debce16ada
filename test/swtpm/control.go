package swtpm

import (
	"encoding/binary"
	"io"
	"net"
	"time"
)

// Commands of swtpm's control channel (swtpm_ioctls(3)).
const (
	controlInit = 2  // CMD_INIT: power cycle; four bytes of flags follow
	controlStop = 14 // CMD_STOP: no answers to commands until CMD_INIT
)

// Reset cuts the power and gives it back without ending the process: loaded
// objects and sessions are gone, connections stay, and the TPM refuses every
// command until TPM2_Startup.
func (t *TPM) Reset() { t.tb.Helper(); t.control(controlInit, 0) }

// PowerOff cuts the power. The process lives and every command fails until
// Reset.
func (t *TPM) PowerOff() { t.tb.Helper(); t.control(controlStop) }

// control sends one command to the control socket: a code, its arguments, and
// back comes a result.
func (t *TPM) control(words ...uint32) {
	t.tb.Helper()
	c, err := net.DialTimeout("unix", t.Path+".ctrl", testTimeout)
	if err != nil {
		t.tb.Fatalf("swtpm: control: %v", err)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	var request []byte
	for _, w := range words {
		request = binary.BigEndian.AppendUint32(request, w)
	}
	result := make([]byte, 4)
	if _, err = c.Write(request); err == nil {
		_, err = io.ReadFull(c, result)
	}
	if code := binary.BigEndian.Uint32(result); err != nil || code != 0 {
		t.tb.Fatalf("swtpm: control command %d: result %#x, %v", words[0], code, err)
	}
}
