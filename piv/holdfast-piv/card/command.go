package card

// Instructions of NIST SP 800-73-4 part 2, section 3, and Yubico's own
// (developers.yubico.com/PIV/Introduction/Yubico_extensions.html).
const (
	insVerify           = 0x20
	insChangeReference  = 0x24
	insResetRetry       = 0x2c
	insAuthenticate     = 0x87
	insSelect           = 0xa4
	insGetData          = 0xcb
	insPutData          = 0xdb
	insGetMetadata      = 0xf7
	insGetSerial        = 0xf8
	insGetVersion       = 0xfd
	insSetManagementKey = 0xff
)

// References of the secrets that are proved to the card.
const (
	refPIN        = 0x80
	refPUK        = 0x81
	refManagement = 0x9b
)

const success = 0x9000

// transmitter is a connection to a card: *pcsc.Card.
type transmitter interface {
	Transmit(command []byte) (data []byte, status uint16, err error)
}

// send sends a command, in a chain when its data is longer than 255 bytes
// (ISO 7816-4, section 5.3.3), and returns the answer's data. It clears data, which
// may hold a PIN. A status other than 9000 is a statusError.
func send(t transmitter, ins, p1, p2 byte, data []byte) ([]byte, error) {
	for {
		part := data[:min(len(data), 255)]
		data = data[len(part):]
		last := len(data) == 0
		answer, err := sendPart(t, []byte{0, ins, p1, p2}, part, last)
		if err != nil || last {
			return answer, err
		}
	}
}

func sendPart(t transmitter, head, part []byte, last bool) ([]byte, error) {
	if !last {
		head[0] = 0x10
	}
	command := append(make([]byte, 0, 5+len(part)), head...)
	command = append(append(command, byte(len(part))), part...)
	defer clear(command)
	answer, status, err := t.Transmit(command)
	if err != nil {
		return nil, err
	}
	if status != success {
		return nil, statusError(status)
	}
	return answer, nil
}
