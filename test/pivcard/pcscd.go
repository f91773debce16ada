package pivcard

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait for pcscd. It is up after 60 ms on an idle machine
// and looks for cards every 400 ms; the rest is for a loaded one.
const patience = 20 * time.Second

// vpcd's first port, and how many readers it makes of one configuration entry,
// on consecutive ports.
const (
	firstPort = 35963
	perEntry  = 2
)

// readerName is how the readers' names begin; pcscd adds the number of the
// entry and of the slot.
const readerName = "Yubico YubiKey OTP+FIDO+CCID"

// launchScript runs in namespaces of its own: vpcd listens on all addresses,
// pcscd's socket has a fixed place, and neither is the machine's.
const launchScript = `mount -t tmpfs none /run && mkdir /run/pcscd &&
mount --bind "$1" /run/pcscd && exec pcscd --foreground --config "$2"`

// A pcscd is a running PC/SC daemon.
type pcscd struct {
	cmd    *exec.Cmd
	socket string
	output bytes.Buffer
	done   chan struct{} // closed when the process has ended
}

// configure writes pcscd's configuration for the readers.
func configure(dir string, slots int) error {
	var b bytes.Buffer
	for slot := 0; slot < slots; slot += perEntry {
		fmt.Fprintf(&b, "FRIENDLYNAME %q\nDEVICENAME /dev/null:%#x\nLIBPATH %s\nCHANNELID %#x\n\n",
			readerName, firstPort+slot, driver, firstPort+slot)
	}
	return os.WriteFile(filepath.Join(dir, "readers"), b.Bytes(), 0o600)
}

// driver is vpcd, as Debian installs it.
const driver = "/usr/lib/pcsc/drivers/serial/libifdvpcd.so"

// launchPCSCD starts a pcscd with its socket in run and its configuration in
// conf, and waits until it has the readers.
func launchPCSCD(run, conf string, slots int) (*pcscd, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("a pcscd of one's own needs root, for its namespaces")
	}
	if _, err := os.Stat(driver); err != nil {
		return nil, fmt.Errorf("%w: install the packages pcscd and vsmartcard-vpcd", err)
	}
	p := &pcscd{socket: filepath.Join(run, "pcscd.comm"), done: make(chan struct{})}
	os.Remove(p.socket) // a killed pcscd leaves them behind
	os.Remove(filepath.Join(run, "pcscd.pid"))
	p.cmd = exec.Command("unshare", "--net", "--mount", "sh", "-c", launchScript, "sh", run, conf)
	p.cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, p.ready(slots)
}

// run starts the process and waits for it on one thread: the kernel sends the
// parent-death signal when the thread that forked ends, not the process.
func (p *pcscd) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // always killed; the exit status says nothing
	}
}

func (p *pcscd) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// ready waits until pcscd answers and has its readers.
func (p *pcscd) ready(slots int) error {
	err := p.until(func(readers []readerState) bool { return len(readers) >= slots })
	if err != nil {
		p.kill()
	}
	return err
}

// until waits for the readers to be as wanted.
func (p *pcscd) until(wanted func([]readerState) bool) error {
	for deadline := time.Now().Add(patience); ; {
		readers, err := p.readers()
		if err == nil && wanted(readers) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pcscd: not so within %v: %v: %s", patience, err, p.output.Bytes())
		}
		select {
		case <-p.done:
			return fmt.Errorf("pcscd ended: %s", p.output.Bytes())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (p *pcscd) readers() ([]readerState, error) {
	c, err := dialPCSC(p.socket)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.readers()
}

// dial connects to a reader's port. The goroutine's thread goes into pcscd's
// network namespace and ends there; the connection can be used everywhere.
func (p *pcscd) dial(slot int) (conn *net.TCPConn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		conn, err = dialInside(p.cmd.Process.Pid, firstPort+slot)
	}()
	<-done
	return conn, err
}

func dialInside(pid, port int) (*net.TCPConn, error) {
	ns, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns", "net"))
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("setns: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return nil, fmt.Errorf("loopback: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// loopbackUp switches the loopback interface of the thread's namespace on.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
