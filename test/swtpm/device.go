package swtpm

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/google/go-tpm/tpm2"
)

// connect sees to it that there is a TPM behind s. A connection that has used
// a TPM which is gone is told so by being closed, as it would be without the
// proxy. The caller holds device.
func (p *Proxy) connect(s *space) error {
	if p.upstream == nil || gone(p.upstream.c) {
		if err := p.redial(); err != nil {
			return err
		}
	}
	if s.life != 0 && s.life != p.life {
		return fmt.Errorf("the TPM was restarted: %w", net.ErrClosed)
	}
	s.life = p.life
	return nil
}

func (p *Proxy) redial() error {
	if p.upstream != nil {
		p.upstream.Close()
	}
	c, err := p.dial()
	if err != nil {
		return err
	}
	p.life++
	p.state.Lock()
	defer p.state.Unlock()
	select {
	case <-p.closed: // Close has gone by and will not come back for c
		c.Close()
		return net.ErrClosed
	default:
		p.upstream = c
		return nil
	}
}

// gone reports whether the other side has closed c.
func gone(c net.Conn) bool {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return true
	}
	closed := true
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = n == 0 && err == nil || err != nil && err != syscall.EAGAIN
		return true
	})
	return closed || err != nil
}

// exchange gives the TPM one command, counts it and takes the time it is said
// to take. The caller holds device.
func (p *Proxy) exchange(command []byte) ([]byte, error) {
	cc := tpm2.TPMCC(codeOf(command))
	p.state.Lock()
	p.counts[cc]++
	delay := p.delay[cc]
	p.state.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-p.closed:
			return nil, net.ErrClosed
		}
	}
	return p.upstream.Send(command)
}
