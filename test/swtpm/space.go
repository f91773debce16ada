package swtpm

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/google/go-tpm/tpm2"
)

// A space is what the resource manager keeps for one connection, in the way of
// Linux's drivers/char/tpm/tpm2-space.c: nothing of it stays in the TPM between
// two commands. Unlike the kernel's it has as many places as the TPM has.
type space struct {
	life     int // of the upstream connection that it lives on; 0 before the first command
	objects  []slot
	sessions []slot
}

// A slot is one transient object or session.
type slot struct {
	virtual uint32 // what the client calls it; a session keeps the TPM's own handle
	real    uint32 // where it is loaded now
	context []byte // TPMS_CONTEXT while it is saved
}

// errContext ends a connection whose objects the TPM does not take back, say
// after a reset. The kernel answers EFAULT.
var errContext = errors.New("the TPM does not take a saved context")

// The most significant byte of a handle is its type (TPM 2.0 Part 2, section 7.2).
const (
	typeHMAC      = 0x02
	typePolicy    = 0x03
	typeTransient = 0x80
)

func isTransient(h uint32) bool { return h>>24 == typeTransient }
func isSession(h uint32) bool   { return h>>24 == typeHMAC || h>>24 == typePolicy }

// manage gives the TPM one command as the kernel would. The caller holds device.
func (p *Proxy) manage(s *space, command []byte) ([]byte, error) {
	if err := p.learnHandles(); err != nil {
		return nil, err
	}
	if err := p.loadAll(s); err != nil {
		return nil, err
	}
	p.toReal(s, command)
	reply, err := p.exchange(command)
	if err != nil {
		return nil, err
	}
	if codeOf(reply) == 0 {
		p.follow(s, command, reply)
	}
	return reply, p.saveAll(s)
}

// learnHandles asks the TPM how many handles each command has.
func (p *Proxy) learnHandles() error {
	if p.handles != nil {
		return nil
	}
	reply, err := p.upstream.Send(capability(tpm2.TPMCapCommands, uint32(tpm2.TPMCCNVUndefineSpaceSpecial), 254))
	if err != nil {
		return err
	}
	p.handles = map[uint32]uint32{}
	for _, attributes := range handlesOf(reply) {
		p.handles[uint32(attributes)&0xffff] = uint32(attributes)
	}
	return nil
}

// handlesIn returns how many handles a command has in front, counting the one
// that TPM2_FlushContext has among its parameters.
func (p *Proxy) handlesIn(command []byte) int {
	cc := codeOf(command)
	if tpm2.TPMCC(cc) == tpm2.TPMCCFlushContext {
		return 1
	}
	return min(int(p.handles[cc]>>25&7), (len(command)-10)/4)
}

// makesHandle reports whether a successful reply to command starts with a handle.
func (p *Proxy) makesHandle(command []byte) bool { return p.handles[codeOf(command)]>>28&1 == 1 }

// loadAll brings what the connection has back into the TPM.
func (p *Proxy) loadAll(s *space) error {
	for _, list := range [][]slot{s.objects, s.sessions} {
		for i := range list {
			reply, err := p.exchange(message(tpm2.TPMCCContextLoad, list[i].context))
			if err != nil {
				return err
			}
			if codeOf(reply) != 0 {
				return errContext
			}
			list[i].real = binary.BigEndian.Uint32(reply[10:])
		}
	}
	return nil
}

// saveAll takes what the connection has out of the TPM. An object that cannot
// be saved ended with the command. Saving a session unloads it; objects are flushed.
func (p *Proxy) saveAll(s *space) error {
	for _, list := range [][]slot{s.objects, s.sessions} {
		for i := range list {
			if err := p.save(&list[i]); err != nil {
				return err
			}
		}
	}
	ended := func(e slot) bool { return e.context == nil }
	s.objects = slices.DeleteFunc(s.objects, ended)
	s.sessions = slices.DeleteFunc(s.sessions, ended)
	return nil
}

// save sets the slot's context, to nil when the TPM no longer knows it.
func (p *Proxy) save(e *slot) error {
	reply, err := p.exchange(message(tpm2.TPMCCContextSave, e.real))
	if err != nil {
		return err
	}
	e.context = nil
	if codeOf(reply) != 0 {
		return nil
	}
	e.context = reply[10:]
	if isTransient(e.real) {
		_, err = p.exchange(message(tpm2.TPMCCFlushContext, e.real))
	}
	return err
}

// toReal puts the TPM's handles where the client wrote its own. One that is not
// this connection's becomes a handle that the TPM does not have.
func (p *Proxy) toReal(s *space, command []byte) {
	for i := range p.handlesIn(command) {
		at := command[10+4*i:]
		h := binary.BigEndian.Uint32(at)
		if !isTransient(h) {
			continue
		}
		binary.BigEndian.PutUint32(at, 0x80ffffff)
		if j := find(s.objects, h); j >= 0 {
			binary.BigEndian.PutUint32(at, s.objects[j].real)
		}
	}
}

func find(list []slot, virtual uint32) int {
	return slices.IndexFunc(list, func(e slot) bool { return e.virtual == virtual })
}

// follow keeps up with what a command that succeeded made or took away.
func (p *Proxy) follow(s *space, command, reply []byte) {
	switch {
	case tpm2.TPMCC(codeOf(command)) == tpm2.TPMCCFlushContext:
		real := binary.BigEndian.Uint32(command[10:])
		flushed := func(e slot) bool { return e.real == real }
		s.objects = slices.DeleteFunc(s.objects, flushed)
		s.sessions = slices.DeleteFunc(s.sessions, flushed)
	case tpm2.TPMCC(codeOf(command)) == tpm2.TPMCCGetCapability:
		listVirtual(s, reply)
	case p.makesHandle(command) && len(reply) >= 14:
		s.adopt(reply[10:14])
	}
}

// adopt takes a new handle into the space and puts the client's name for it in
// its place.
func (s *space) adopt(at []byte) {
	h := binary.BigEndian.Uint32(at)
	switch {
	case isTransient(h):
		virtual := s.freeName()
		s.objects = append(s.objects, slot{virtual: virtual, real: h})
		binary.BigEndian.PutUint32(at, virtual)
	case isSession(h):
		s.sessions = append(s.sessions, slot{virtual: h, real: h})
	}
}

// freeName counts down from 0x80fffffe; one higher means no object.
func (s *space) freeName() uint32 {
	name := uint32(0x80fffffe)
	for find(s.objects, name) >= 0 {
		name--
	}
	return name
}

// listVirtual renames the transient handles in a reply to TPM2_GetCapability.
func listVirtual(s *space, reply []byte) {
	if len(reply) < 19 || tpm2.TPMCap(binary.BigEndian.Uint32(reply[11:])) != tpm2.TPMCapHandles {
		return
	}
	for at := reply[19:]; len(at) >= 4; at = at[4:] {
		real := binary.BigEndian.Uint32(at)
		for _, e := range s.objects {
			if e.real == real {
				binary.BigEndian.PutUint32(at, e.virtual)
			}
		}
	}
}

// leave flushes what a connection leaves behind: its sessions, which the TPM
// goes on counting while they are saved.
func (p *Proxy) leave(s *space) {
	p.device.Lock()
	defer p.device.Unlock()
	if s.life != p.life {
		return
	}
	for _, e := range s.sessions {
		if _, err := p.exchange(message(tpm2.TPMCCFlushContext, e.virtual)); err != nil {
			return
		}
	}
}
