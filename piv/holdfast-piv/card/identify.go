package card

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"holdfast/internal/fault"
	"holdfast/piv/wire"
)

// Applications by name.
var (
	pivAID = []byte{0xa0, 0x00, 0x00, 0x03, 0x08}
	otpAID = []byte{0xa0, 0x00, 0x00, 0x05, 0x27, 0x20, 0x01, 0x01}
)

// identify reads the serial number and the firmware of any card in the reader.
func (s *Session) identify(reader string, wait time.Duration, reply *wire.Reply) error {
	c, err := s.acquire(reader, wait)
	if err != nil {
		return named(reader, err)
	}
	defer c.Close()
	version, serial, err := identity(c)
	if err != nil {
		return named(reader, notPIV(reader, err))
	}
	reply.Serial, reply.Firmware = serial, fmt.Sprintf("%d.%d.%d", version[0], version[1], version[2])
	return nil
}

// named translates err with the reader's name, unless it is a fault already.
func named(reader string, err error) error {
	if _, ok := fault.AsError(err); ok {
		return err
	}
	return Fault(reader, err)
}

// identity asks for version and serial number. Before version 5 the OTP
// application alone knows the serial number.
func identity(t transmitter) (version []byte, serial uint32, err error) {
	if _, err := send(t, insSelect, 0x04, 0, pivAID); err != nil {
		return nil, 0, err
	}
	version, err = send(t, insGetVersion, 0, 0, nil)
	if err != nil {
		return nil, 0, err
	}
	if len(version) != 3 {
		return nil, 0, errors.New("a version has three parts")
	}
	number, err := serialNumber(t, version[0])
	if err == nil && len(number) != 4 {
		err = errors.New("a serial number has four bytes")
	}
	if err != nil {
		return nil, 0, err
	}
	return version, binary.BigEndian.Uint32(number), nil
}

func serialNumber(t transmitter, major byte) ([]byte, error) {
	if major >= 5 {
		return send(t, insGetSerial, 0, 0, nil)
	}
	if _, err := send(t, insSelect, 0x04, 0, otpAID); err != nil {
		return nil, err
	}
	return send(t, 0x01, 0x10, 0, nil)
}
