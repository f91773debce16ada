package swtpm

import (
	"net"

	"github.com/google/go-tpm/tpm2"
)

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.register(c) {
			p.clients.Go(func() { p.serve(c) })
		}
	}
}

// register notes a connection to be closed with the proxy.
func (p *Proxy) register(c net.Conn) bool {
	p.state.Lock()
	defer p.state.Unlock()
	select {
	case <-p.closed:
		c.Close()
		return false
	default:
		p.open[c] = struct{}{}
		return true
	}
}

func (p *Proxy) serve(c net.Conn) {
	s := &space{}
	defer func() {
		c.Close()
		p.leave(s)
		p.state.Lock()
		delete(p.open, c)
		p.state.Unlock()
	}()
	for {
		command, err := readMessage(c)
		if err != nil {
			return
		}
		reply, err := p.do(s, command)
		if err != nil {
			return
		}
		if _, err := c.Write(reply); err != nil {
			return
		}
	}
}

// do carries one client command through script, device and mutation.
func (p *Proxy) do(s *space, command []byte) ([]byte, error) {
	cc := tpm2.TPMCC(codeOf(command))
	fate, mutate := p.note(cc, command)
	if fate == DropBefore {
		return nil, net.ErrClosed
	}
	reply, err := p.answer(s, command, fate)
	if err != nil {
		return nil, err
	}
	if fate == DropAfter {
		return nil, net.ErrClosed
	}
	if mutate != nil {
		p.state.Lock()
		reply = mutate(cc, reply)
		p.state.Unlock()
	}
	p.tape(reply)
	return reply, nil
}

// answer gets the reply from the TPM, or lays out the one that fate wants.
func (p *Proxy) answer(s *space, command []byte, fate Fate) ([]byte, error) {
	if fate > 0 {
		return build(tpm2.TPMSTNoSessions, uint32(fate), nil), nil
	}
	p.device.Lock()
	defer p.device.Unlock()
	if err := p.connect(s); err != nil {
		return nil, err
	}
	if p.rm {
		return p.manage(s, command)
	}
	return p.exchange(command)
}

// note records a client's command and looks up its fate.
func (p *Proxy) note(cc tpm2.TPMCC, command []byte) (Fate, Mutation) {
	p.tape(command)
	p.state.Lock()
	defer p.state.Unlock()
	n := p.seen
	p.seen++
	if p.script == nil {
		return Pass, p.mutate
	}
	return p.script(n, cc), p.mutate
}

func (p *Proxy) tape(m []byte) {
	p.state.Lock()
	defer p.state.Unlock()
	if p.record {
		p.recorded.Write(m)
	}
}
