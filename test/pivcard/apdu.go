package pivcard

import "errors"

// An Instruction is the second byte of a command.
type Instruction byte

// The instructions that the card knows: NIST SP 800-73-4 part 2, section 3,
// and Yubico's extensions to it.
const (
	Verify           Instruction = 0x20 // VERIFY
	ChangeReference  Instruction = 0x24 // CHANGE REFERENCE DATA: PIN or PUK
	ResetRetry       Instruction = 0x2c // RESET RETRY COUNTER: PUK and new PIN
	Generate         Instruction = 0x47 // GENERATE ASYMMETRIC KEY PAIR
	Authenticate     Instruction = 0x87 // GENERAL AUTHENTICATE: sign, agree, management key
	Select           Instruction = 0xa4 // SELECT
	GetResponse      Instruction = 0xc0 // GET RESPONSE
	GetData          Instruction = 0xcb // GET DATA
	PutData          Instruction = 0xdb // PUT DATA
	MoveKey          Instruction = 0xf6 // MOVE KEY, or delete it; from firmware 5.7
	GetMetadata      Instruction = 0xf7 // GET METADATA; from firmware 5.3
	GetSerial        Instruction = 0xf8 // GET SERIAL; from firmware 5.0
	Attest           Instruction = 0xf9 // ATTEST; from firmware 4.3
	SetRetries       Instruction = 0xfa // SET PIN RETRIES
	Reset            Instruction = 0xfb // RESET
	GetVersion       Instruction = 0xfd // GET VERSION
	ImportKey        Instruction = 0xfe // IMPORT ASYMMETRIC KEY
	SetManagementKey Instruction = 0xff // SET MANAGEMENT KEY
	readConfig       Instruction = 0x1d // READ CONFIG of the management application
	otpRequest       Instruction = 0x01 // API REQUEST of the OTP application
)

// A status is the two bytes that end every answer (ISO 7816-4, 5.1.3).
type status uint16

const (
	ok              status = 0x9000
	wrongPIN        status = 0x63c0 // plus the tries that are left
	wrongLength     status = 0x6700
	notSatisfied    status = 0x6982 // PIN, touch or management key is missing
	blocked         status = 0x6983
	notAllowed      status = 0x6985 // conditions of use not satisfied
	wrongData       status = 0x6a80
	notFound        status = 0x6a82
	noSpace         status = 0x6a84
	wrongParameters status = 0x6a86
	noReference     status = 0x6a88
	noInstruction   status = 0x6d00
	noClass         status = 0x6e00
)

func (s status) bytes() []byte { return []byte{byte(s >> 8), byte(s)} }

// Bounds of what the card takes and gives; a YubiKey's are similar.
const (
	maxData  = 8192 // of a chained command
	maxReply = 256  // in one answer to a short command
)

// A command is one APDU (ISO 7816-4, 5.1), or a chain of them put together.
type command struct {
	cla      byte
	ins      Instruction
	p1, p2   byte
	data     []byte
	extended bool // its length has three bytes: the answer need not be cut
}

// chainBit of the class says that more of the command is to come.
const chainBit = 0x10

var errAPDU = errors.New("malformed command")

// parse reads an APDU of any of the seven cases of ISO 7816-4, 5.1. The
// expected length of the answer is dropped: the card sends its whole answer.
func parse(b []byte) (command, error) {
	if len(b) < 4 {
		return command{}, errAPDU
	}
	c := command{cla: b[0], ins: Instruction(b[1]), p1: b[2], p2: b[3]}
	body := b[4:]
	switch {
	case len(body) <= 1: // no data
	case body[0] != 0:
		n := int(body[0])
		if len(body) != 1+n && len(body) != 2+n {
			return command{}, errAPDU
		}
		c.data = body[1 : 1+n]
	case len(body) == 3: // three bytes of expected length
		c.extended = true
	case len(body) > 3:
		n := int(body[1])<<8 | int(body[2])
		if len(body) != 3+n && len(body) != 5+n {
			return command{}, errAPDU
		}
		c.data, c.extended = body[3:3+n], true
	default:
		return command{}, errAPDU
	}
	return c, nil
}

// instructionOf is what a command, however malformed, seems to want.
func instructionOf(raw []byte) Instruction {
	if len(raw) < 2 {
		return 0
	}
	return Instruction(raw[1])
}

// chained adds a link of a command chain (ISO 7816-4, 5.1.1). It reports whether the
// command is complete; an incomplete one is answered by the status.
func (c *Card) chained(cmd *command) (status, bool) {
	begun := len(c.chain.data) > 0
	if begun && cmd.ins != c.chain.ins {
		c.chain, begun = command{}, false // another command ends the chain
	}
	if !begun && cmd.cla&chainBit == 0 {
		return ok, true
	}
	if len(c.chain.data)+len(cmd.data) > maxData {
		c.chain = command{}
		return noSpace, false
	}
	data := append(c.chain.data, cmd.data...)
	if cmd.cla&chainBit != 0 {
		c.chain = command{ins: cmd.ins, data: data}
		return ok, false
	}
	c.chain, cmd.data = command{}, data
	return ok, true
}

// deliver returns the first part of an answer and keeps the rest for GET
// RESPONSE.
func (c *Card) deliver(data []byte, s status, whole bool) []byte {
	c.pending = nil
	if s != ok || whole || len(data) <= maxReply {
		return append(data, s.bytes()...)
	}
	c.pending = data[maxReply:]
	return append(data[:maxReply:maxReply], c.more().bytes()...)
}

// more is the status that announces what is pending.
func (c *Card) more() status {
	if len(c.pending) >= maxReply {
		return 0x6100
	}
	return 0x6100 | status(len(c.pending))
}

func (c *Card) getResponse() []byte {
	if c.pending == nil {
		return notAllowed.bytes()
	}
	return c.deliver(c.pending, ok, false)
}
