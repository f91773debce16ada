package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"syscall"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// The limits of kubelet's streaming server.
const (
	idleTimeout     = 4 * time.Hour
	creationTimeout = 30 * time.Second
)

// handler serves the paths of a kubelet that kubectl has a use for.
func (n *Node) handler() http.Handler {
	mux := http.NewServeMux()
	for path, serve := range map[string]func(*Pod, http.ResponseWriter, *http.Request){
		"/containerLogs/{namespace}/{pod}/{container}": serveLogs,
		"/exec/{namespace}/{pod}/{container}":          serveExec,
		"/attach/{namespace}/{pod}/{container}":        serveAttach,
		"/portForward/{namespace}/{pod}":               servePortForward,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			pod, err := n.pod(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
				return
			}
			serve(pod, w, r)
		})
	}
	return mux
}

func serveLogs(pod *Pod, w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w).Flush
	_ = flush() // the header: kubectl shows nothing before, but knows that it is connected
	pod.log.follow(r.Context(), r.FormValue("follow") == "true", func(text []byte) error {
		_, err := w.Write(text)
		return errors.Join(err, flush())
	})
}

func serveExec(pod *Pod, w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, pod, pod.Name, "", r.PathValue("container"), r.Form["command"], options,
		idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func serveAttach(pod *Pod, w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, pod, pod.Name, "", r.PathValue("container"), options,
		idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func servePortForward(pod *Pod, w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, pod, pod.Name, "", options, idleTimeout, creationTimeout, portforward.SupportedProtocols)
}

var (
	_ remotecommand.Executor    = (*Pod)(nil)
	_ remotecommand.Attacher    = (*Pod)(nil)
	_ portforward.PortForwarder = (*Pod)(nil)
)

// ExecInContainer runs a command in the pod's directory.
func (p *Pod) ExecInContainer(ctx context.Context, _, _, _ string, command []string, in io.Reader, out, errors io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return p.command(ctx, command, in, out, errors)
}

// AttachContainer connects to the container's process, which gives back what it
// is given, after a word of its own.
func (p *Pod) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errors io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	return p.command(ctx, []string{"sh", "-c", "echo attached; exec cat"}, in, out, errors)
}

func (p *Pod) command(ctx context.Context, command []string, in io.Reader, out, stderr io.WriteCloser) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = p.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out != nil {
		cmd.Stdout = out
	}
	if stderr != nil {
		cmd.Stderr = stderr
	}
	var pipe io.WriteCloser
	if in != nil {
		var err error
		if pipe, err = cmd.StdinPipe(); err != nil {
			return err
		}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if pipe != nil {
		// Not waited for: the client may keep its side open after the command's end.
		go func() {
			_, _ = io.Copy(pipe, in)
			_ = pipe.Close()
		}()
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

// PortForward connects a stream to a port of this machine.
func (p *Pod) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	return err
}
