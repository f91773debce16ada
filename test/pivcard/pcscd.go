package pivcard

import (
	"bytes"
	"context"
	"errors"
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

// testTimeout bounds every wait for pcscd. It is up after 60 ms on an idle machine
// and looks for cards every 400 ms; the rest is for a loaded one.
const testTimeout = 20 * time.Second

// vpcd's first port, and how many readers it makes of one configuration entry,
// on consecutive ports.
const (
	firstPort = 35963
	perEntry  = 2
)

// entryName names a configuration entry; pcscd adds 00 and the number of the
// slot, whatever other entries there are.
func entryName(slot int) string {
	const name = "Yubico YubiKey OTP+FIDO+CCID"
	if entry := slot / perEntry; entry > 0 {
		return fmt.Sprintf("%s (%d)", name, entry+1)
	}
	return name
}

// launchScript runs in namespaces of its own: vpcd listens on all addresses,
// pcscd's socket has a fixed place, and neither is the machine's.
const launchScript = `mount -t tmpfs none /run && mkdir /run/pcscd &&
mount --bind "$1" /run/pcscd && exec pcscd --foreground --config "$2"`

// A pcscd is a running PC/SC daemon.
type pcscd struct {
	cmd    *exec.Cmd
	socket string
	log    string        // what it and its driver say
	done   chan struct{} // closed when the process has ended
}

// configure writes pcscd's configuration for the readers. Each entry but the
// first has a copy of the driver in dir: a driver knows the slots of one entry
// only.
func configure(dir, conf string, slots int) error {
	library, err := os.ReadFile(driver)
	if err != nil {
		return fmt.Errorf("%w: install the packages pcscd and vsmartcard-vpcd", err)
	}
	var b bytes.Buffer
	for slot := 0; slot < slots; slot += perEntry {
		port, path := firstPort+slot, driver
		if slot > 0 {
			path = filepath.Join(dir, fmt.Sprintf("vpcd-%d.so", port))
			if err := os.WriteFile(path, library, 0o755); err != nil {
				return err
			}
		}
		fmt.Fprintf(&b, "FRIENDLYNAME %q\nDEVICENAME /dev/null:%#x\nLIBPATH %s\nCHANNELID %#x\n\n", entryName(slot), port, path, port)
	}
	return os.WriteFile(filepath.Join(conf, "readers"), b.Bytes(), 0o600)
}

// driver is vpcd, as Debian installs it.
const driver = "/usr/lib/pcsc/drivers/serial/libifdvpcd.so"

// launchPCSCD starts a pcscd with its socket in dir/run and its configuration in
// dir/conf, and waits until it has the readers.
func launchPCSCD(dir string, slots int) (*pcscd, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a pcscd of one's own needs root, for its namespaces")
	}
	run := filepath.Join(dir, "run")
	p := &pcscd{socket: filepath.Join(run, "pcscd.comm"), log: filepath.Join(dir, "pcscd.log"), done: make(chan struct{})}
	os.Remove(p.socket) // a killed pcscd leaves them behind
	os.Remove(filepath.Join(run, "pcscd.pid"))
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command("unshare", "--net", "--mount", "sh", "-c", launchScript, "sh", run, filepath.Join(dir, "conf"))
	p.cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, p.ready(slots)
}

// said is the end of what pcscd and its driver have said, for errors.
func (p *pcscd) said() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
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
	var c *pcscClient
	var readers []readerState
	defer func() { c.close() }()
	for deadline := time.Now().Add(testTimeout); ; {
		var err error
		if c == nil {
			c, err = dialPCSC(p.socket)
		}
		if err == nil {
			readers, err = c.readers()
		}
		if err == nil && wanted(readers) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pcscd: %q are not as wanted within %v: %v: %s", names(readers), testTimeout, err, p.said())
		}
		select {
		case <-p.done:
			return fmt.Errorf("pcscd ended: %s", p.said())
		case <-time.After(2 * time.Millisecond):
		}
	}
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
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
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

func names(readers []readerState) []string {
	var all []string
	for _, r := range readers {
		all = append(all, r.name())
	}
	return all
}
