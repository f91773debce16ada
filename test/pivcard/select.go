package pivcard

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Applications on the card, by their full names.
var (
	pivAID        = []byte{0xa0, 0x00, 0x00, 0x03, 0x08, 0x00, 0x00, 0x10, 0x00, 0x01, 0x00}
	managementAID = []byte{0xa0, 0x00, 0x00, 0x05, 0x27, 0x47, 0x11, 0x17}
	otpAID        = []byte{0xa0, 0x00, 0x00, 0x05, 0x27, 0x20, 0x01, 0x01}
)

// An applet is one application: its answer to SELECT and its commands.
type applet struct {
	aid      []byte
	greeting func(*Card) []byte
	handlers map[Instruction]func(*Card, command) ([]byte, status)
}

func applets() []*applet {
	return []*applet{
		{pivAID, (*Card).pivGreeting, pivHandlers()},
		{managementAID, (*Card).managementGreeting, map[Instruction]func(*Card, command) ([]byte, status){
			readConfig: (*Card).config,
		}},
		{otpAID, (*Card).otpGreeting, map[Instruction]func(*Card, command) ([]byte, status){
			otpRequest: (*Card).otpSerial,
		}},
	}
}

// selectApplet is SELECT by name, whole or cut short. Selecting another
// application resets the verifications of the last one; an unknown name changes
// nothing.
func (c *Card) selectApplet(cmd command) ([]byte, status) {
	if cmd.p1 != 0x04 {
		return nil, wrongParameters
	}
	for _, a := range c.applets {
		if len(cmd.data) < 5 || !bytes.HasPrefix(a.aid, cmd.data) {
			continue
		}
		if !bytes.Equal(a.aid, pivAID) && c.OnlyPIV {
			break
		}
		if bytes.Equal(a.aid, pivAID) && c.NotPIV {
			break
		}
		if c.selected != a {
			c.forget()
		}
		c.selected = a
		return a.greeting(c), ok
	}
	return nil, notFound
}

// pivGreeting is the application property template (SP 800-73-4 part 2, 3.1.1).
func (c *Card) pivGreeting() []byte {
	return tlv(0x61, tlv(0x4f, pivAID[5:]), tlv(0x79, tlv(0x4f, pivAID[:5])))
}

func (c *Card) managementGreeting() []byte {
	return fmt.Appendf(nil, "Virtual mgr - FW version %v", c.Firmware)
}

// otpGreeting is the status of an OTP application with no slot configured.
func (c *Card) otpGreeting() []byte { return append(c.Firmware.bytes(), 0, 0, 0) }

func (c *Card) serial() []byte { return binary.BigEndian.AppendUint32(nil, c.Serial) }

// config answers READ CONFIG of the management application: one length, then
// interfaces, serial number, form factor and version.
func (c *Card) config(command) ([]byte, status) {
	var all []byte
	for _, field := range [][]byte{
		tlv(0x01, []byte{0x02, 0x10}), // applications supported over USB: PIV
		tlv(0x02, c.serial()),
		tlv(0x03, []byte{0x02, 0x10}), // and enabled
		tlv(0x04, []byte{formFactor}),
		tlv(0x05, c.Firmware.bytes()),
	} {
		all = append(all, field...)
	}
	return append([]byte{byte(len(all))}, all...), ok
}

// otpSerial answers the OTP application's request 10: keys before firmware 5
// tell their serial number nowhere else.
func (c *Card) otpSerial(cmd command) ([]byte, status) {
	if cmd.p1 != 0x10 {
		return nil, wrongParameters
	}
	return c.serial(), ok
}
