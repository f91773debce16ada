package daemon

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Manager does what systemd does for a service with FileDescriptorStoreMax=: it keeps
// the descriptors that a process sends with FDSTORE=1, and passes them to the next one.
type Manager struct {
	tb   TB
	conn *net.UnixConn

	mu    sync.Mutex
	names []string
	files []*os.File
}

// NewManager starts a manager for one service.
func NewManager(tb TB) *Manager {
	tb.Helper()
	path := filepath.Join(Dir(tb), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		tb.Fatalf("%v", err)
	}
	m := &Manager{tb: tb, conn: conn}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.receive()
	}()
	tb.Cleanup(func() {
		_ = conn.Close()
		<-ended
		for _, f := range m.files {
			_ = f.Close()
		}
	})
	return m
}

// receive handles messages until the socket is closed.
func (m *Manager) receive() {
	text, control := make([]byte, 4096), make([]byte, 1024)
	for {
		n, c, _, _, err := m.conn.ReadMsgUnix(text, control)
		if err != nil {
			return
		}
		m.handle(string(text[:n]), descriptors(control[:c]))
	}
}

// descriptors returns the descriptors of a message.
func descriptors(control []byte) (files []*os.File) {
	messages, _ := unix.ParseSocketControlMessage(control) // none without a descriptor
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "kept"))
		}
	}
	return files
}

func (m *Manager) handle(text string, files []*os.File) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, name, _ := strings.Cut(text, "FDNAME=")
	switch {
	case strings.HasPrefix(text, "FDSTORE=1\n") && len(files) == 1:
		m.names, m.files = append(m.names, name), append(m.files, files[0])
	case strings.HasPrefix(text, "FDSTOREREMOVE=1\n"):
		for i := len(m.names) - 1; i >= 0; i-- {
			if m.names[i] == name {
				_ = m.files[i].Close()
				m.names, m.files = append(m.names[:i], m.names[i+1:]...), append(m.files[:i], m.files[i+1:]...)
			}
		}
	}
}

// Kept returns the names of what the manager keeps.
func (m *Manager) Kept() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.names...)
}

// Passing returns the options of a broker that the manager starts. A shell stands in for
// systemd: it knows its pid before it becomes the broker.
func (m *Manager) Passing(o BrokerOptions) BrokerOptions {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.Env = append([]string{"NOTIFY_SOCKET=" + m.conn.LocalAddr().String()}, o.Env...)
	if len(m.files) > 0 {
		o.Files = m.files
		o.Env = append(o.Env, "LISTEN_FDS="+strconv.Itoa(len(m.files)), "LISTEN_FDNAMES="+strings.Join(m.names, ":"))
		o.Wrap = []string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}
	}
	return o
}

// WaitKept returns when the manager keeps n descriptors.
func (m *Manager) WaitKept(n int) {
	m.tb.Helper()
	for deadline := time.Now().Add(testTimeout); len(m.Kept()) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			m.tb.Fatalf("the manager keeps %v, want %d", m.Kept(), n)
		}
	}
}
