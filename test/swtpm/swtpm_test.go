package swtpm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"go.uber.org/goleak"

	"holdfast/test/swtpm"
)

func TestMain(m *testing.M) {
	if os.Getenv("SWTPM_TEST_CHILD") != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

func dial(t *testing.T, tpm *swtpm.TPM) *swtpm.Conn {
	t.Helper()
	c, err := tpm.Dial()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// primary makes an ECC storage key and returns its handle and name.
func primary(t *testing.T, tpm transport.TPM) (tpm2.TPMHandle, tpm2.TPM2BName) {
	t.Helper()
	rsp, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
	return rsp.ObjectHandle, rsp.Name
}

func TestStartAnswers(t *testing.T) {
	tpm := swtpm.Start(t)
	c := dial(t, tpm)
	defer c.Close()
	rsp, err := tpm2.GetRandom{BytesRequested: 16}.Execute(c)
	if err != nil || len(rsp.RandomBytes.Buffer) != 16 {
		t.Fatalf("GetRandom: got %v, %v, want 16 bytes", rsp, err)
	}
	if got, want := tpm.Device(), "swtpm:"+tpm.Path; got != want {
		t.Errorf("Device: got %q, want %q", got, want)
	}
}

func TestTwoTPMsAreTwoTPMs(t *testing.T) {
	var names [][]byte
	for range 2 {
		c := dial(t, swtpm.Start(t))
		_, name := primary(t, c)
		names = append(names, name.Buffer)
		c.Close()
	}
	if bytes.Equal(names[0], names[1]) {
		t.Error("two TPMs derive the same primary key")
	}
}

func TestSockets(t *testing.T) {
	for range 20 { // temporary directories must stay short enough for a socket
		tpm := swtpm.Start(t)
		if len(tpm.Path)+len(".ctrl") > 107 {
			t.Fatalf("%s is too long for a socket", tpm.Path)
		}
	}
}

func TestDiesWithItsTest(t *testing.T) {
	var pid int
	var path string
	t.Run("inner", func(t *testing.T) {
		tpm := swtpm.Start(t)
		pid, path = tpm.Pid(), tpm.Path
	})
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d: got %v, want no such process", pid, err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: got %v, want it removed", filepath.Dir(path), err)
	}
}

// childTB is the TB of a program that is no test.
type childTB struct{}

func (childTB) Helper()                      {}
func (childTB) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (childTB) Cleanup(func())               {}

// child starts a TPM, says so, and waits to be killed.
func child() int {
	tpm := swtpm.Start(childTB{})
	fmt.Println(tpm.Pid(), filepath.Dir(tpm.Path), tpm.Dir)
	time.Sleep(time.Minute)
	return 0
}

func TestDiesWithTheTestProcess(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SWTPM_TEST_CHILD=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var dirs [2]string
	if _, err := fmt.Fscan(out, &pid, &dirs[0], &dirs[1]); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dirs[0])
	defer os.RemoveAll(dirs[1])
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	wait(t, "the end of the orphan", func() bool { return !alive(pid) })
}

// alive reports whether pid runs; an unreaped zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
	}
}

func TestRestartKeepsTheState(t *testing.T) {
	tpm := swtpm.Start(t)
	c := dial(t, tpm)
	_, before := primary(t, c)
	c.Close()
	path := tpm.Path
	tpm.Restart()
	c = dial(t, tpm)
	defer c.Close()
	_, after := primary(t, c)
	if !bytes.Equal(after.Buffer, before.Buffer) || tpm.Path != path {
		t.Errorf("after a restart: got another TPM at %s, want the same at %s", tpm.Path, path)
	}
}

func TestRestartInSwaps(t *testing.T) {
	mine, other := swtpm.Start(t), swtpm.Start(t)
	c := dial(t, mine)
	_, before := primary(t, c)
	c.Close()
	other.Kill()
	mine.RestartIn(other.Dir)
	c = dial(t, mine)
	_, swapped := primary(t, c)
	c.Close()
	if bytes.Equal(swapped.Buffer, before.Buffer) {
		t.Error("after a swap: the same TPM answers")
	}
	again := swtpm.StartIn(t, func() string { mine.Kill(); return mine.Dir }())
	c = dial(t, again)
	defer c.Close()
	if _, name := primary(t, c); !bytes.Equal(name.Buffer, swapped.Buffer) {
		t.Error("StartIn: another TPM than the one whose state it is")
	}
}

func TestStopAndCont(t *testing.T) {
	tpm := swtpm.Start(t)
	c := dial(t, tpm)
	defer c.Close()
	tpm.Stop()
	answered := make(chan error, 1)
	go func() {
		_, err := tpm2.GetRandom{BytesRequested: 1}.Execute(c)
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a stopped TPM answers: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	tpm.Cont()
	if err := <-answered; err != nil {
		t.Errorf("after Cont: got %v, want an answer", err)
	}
}

func TestResetDropsWhatWasLoaded(t *testing.T) {
	tpm := swtpm.Start(t)
	c := dial(t, tpm)
	primary(t, c)
	tpm.Reset()
	if _, err := (tpm2.GetRandom{BytesRequested: 1}).Execute(c); !errors.Is(err, tpm2.TPMRCInitialize) {
		t.Errorf("before TPM2_Startup: got %v, want TPM_RC_INITIALIZE", err)
	}
	c.Close()
	tpm.Startup()
	if got := tpm.Handles(); len(got) != 0 {
		t.Errorf("after a reset: got handles %#x, want none", got)
	}
}

func TestPowerOff(t *testing.T) {
	tpm := swtpm.Start(t)
	tpm.PowerOff()
	c := dial(t, tpm)
	_, err := tpm2.GetRandom{BytesRequested: 1}.Execute(c)
	c.Close()
	if err == nil {
		t.Error("a TPM without power answers")
	}
	tpm.Reset()
	tpm.Startup()
}

func TestHandles(t *testing.T) {
	tpm := swtpm.Start(t)
	c := dial(t, tpm)
	object, _ := primary(t, c)
	_, closer, err := tpm2.HMACSession(c, tpm2.TPMAlgSHA256, 16)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	want := []tpm2.TPMHandle{0x02000000, object}
	if got := tpm.Handles(); !slices.Equal(got, want) {
		t.Errorf("got %#x, want %#x", got, want)
	}
	_ = closer // flushing needs the connection that is closed now
}

func TestClear(t *testing.T) {
	tpm := swtpm.Start(t)
	c := dial(t, tpm)
	_, before := primary(t, c)
	c.Close()
	tpm.Clear()
	c = dial(t, tpm)
	defer c.Close()
	if _, after := primary(t, c); bytes.Equal(after.Buffer, before.Buffer) {
		t.Error("the owner seed survived TPM2_Clear")
	}
}

func TestPropertyAndLockout(t *testing.T) {
	tpm := swtpm.Start(t)
	if got := tpm.Property(tpm2.TPMPTMaxAuthFail); got == 0 {
		t.Error("TPM_PT_MAX_AUTH_FAIL: got 0")
	}
	tpm.ResetLockout()
	tpm.Shutdown()
	if got := tpm.Property(tpm2.TPMPTLockoutCounter); got != 0 {
		t.Errorf("TPM_PT_LOCKOUT_COUNTER: got %d, want 0", got)
	}
}

func TestEnvServesTools(t *testing.T) {
	tpm := swtpm.Start(t)
	cmd := exec.Command("tpm2_getcap", "properties-fixed")
	cmd.Env = append(os.Environ(), tpm.Env()...)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("TPM2_PT_MANUFACTURER")) {
		t.Errorf("tpm2_getcap: %v: %s", err, out)
	}
}

// lamentTB notes the message with which a test would end.
type lamentTB struct {
	testing.TB
	message string
}

func (l *lamentTB) Fatalf(f string, args ...any) {
	l.message = fmt.Sprintf(f, args...)
	panic(l)
}

func TestMissingSwtpmIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	tb := &lamentTB{TB: t}
	defer func() {
		if recover() == nil || !strings.Contains(tb.message, "install the packages swtpm") {
			t.Errorf("without swtpm: got %q, want the package named", tb.message)
		}
	}()
	swtpm.Start(tb)
}
