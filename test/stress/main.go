// Command stress runs the tests again and again beside processes that keep the
// processors busy, and counts the tests that were red.
//
//	stress -n 10                                  the whole suite and test/kube
//	stress -n 50 -run 'holdfast/piv TestCard'     one test
//
// Each round is `go test -race -count=1` of the packages, and the same in the
// module test/kube without -race. One test alone is run by one call, with -count.
// The output of a red test is in the directory that -logs names.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what the command line says.
type options struct {
	rounds   int
	busy     int
	packages string
	run      string
	logs     string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "n", 10, "how many `rounds` to run")
	flag.IntVar(&o.busy, "busy", 2, "how many busy `processes` to run beside the tests")
	flag.StringVar(&o.packages, "packages", "./...", "the `packages` to test")
	flag.StringVar(&o.run, "run", "", "one `test` to run instead: a package and a pattern, as in 'holdfast/piv TestCard'")
	flag.StringVar(&o.logs, "logs", "build/stress", "the `directory` for the output of red tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	red, err := stress(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
	}
	if err != nil || red > 0 {
		stop()
		os.Exit(1)
	}
}

// stress runs the rounds and returns how many tests were red.
func stress(ctx context.Context, o options) (red int, err error) {
	if err := os.MkdirAll(o.logs, 0o755); err != nil {
		return 0, err
	}
	runs, err := o.commands()
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for range o.busy {
		if err := burn(ctx); err != nil {
			return 0, err
		}
	}
	t := &tally{red: map[string]int{}, logs: o.logs}
	rounds, done := o.rounds, 0
	if o.run != "" {
		rounds = 1 // of go test -count
	}
	for ; done < rounds && ctx.Err() == nil; done++ {
		begun := time.Now()
		before := t.total()
		for _, r := range runs {
			if err := t.round(ctx, r); err != nil {
				return t.total(), err
			}
		}
		fmt.Printf("round %d of %d: %d red, %v\n", done+1, rounds, t.total()-before, time.Since(begun).Round(time.Second))
	}
	if o.run == "" {
		t.print(done)
	} else if t.print(o.rounds); t.passed+t.total() == 0 {
		return 0, fmt.Errorf("no test is named as in -run %q", o.run)
	}
	return t.total(), ctx.Err()
}

// A testRun is one call of go test.
type testRun struct {
	dir  string
	env  []string
	args []string
}

// commands are the calls of go test that make a round.
func (o options) commands() ([]testRun, error) {
	base := []string{"test", "-json"}
	if o.run == "" {
		base = append(base, "-count=1", "-timeout=30m")
	} else {
		base = append(base, fmt.Sprintf("-count=%d", o.rounds), "-timeout=0")
	}
	kube := testRun{dir: "test/kube", env: []string{"CGO_ENABLED=0", "GOFLAGS=" + os.Getenv("GOFLAGS") + " -trimpath"}, args: append(slices.Clone(base), "-parallel=6")}
	main := testRun{dir: ".", args: append(slices.Clone(base), "-race", fmt.Sprintf("-p=%d", 2*runtime.NumCPU()))}
	if o.run == "" {
		main.args, kube.args = append(main.args, strings.Fields(o.packages)...), append(kube.args, "./...")
		if !strings.Contains(o.packages, "./...") {
			return []testRun{main}, nil
		}
		return []testRun{main, kube}, nil
	}
	words := strings.Fields(o.run)
	if len(words) != 2 {
		return nil, fmt.Errorf("-run %q: want a package and a test's pattern", o.run)
	}
	one := main
	if strings.HasPrefix(words[0], "holdfast/test/kube") {
		one = kube
	}
	one.args = append(one.args, "-run=^"+words[1]+"$", words[0])
	return []testRun{one}, nil
}

// A tally counts red tests by their names.
type tally struct {
	red    map[string]int
	passed int // tests, without subtests
	logs   string
}

// An event is a line of go test -json (cmd/test2json).
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of a package that does not build
	FailedBuild                   string
}

// round calls go test once and notes what was red.
func (t *tally) round(ctx context.Context, r testRun) error {
	command, err := filepath.Abs("test/go")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, command, r.args...)
	cmd.Dir, cmd.Env, cmd.Stderr = r.dir, append(os.Environ(), r.env...), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with go, its tests are interrupted
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	seen := t.read(out)
	err = cmd.Wait()
	var exit *exec.ExitError
	if ctx.Err() != nil || errors.As(err, &exit) && seen {
		return ctx.Err()
	}
	return err
}

// read reads the events of one call and reports whether there were any.
func (t *tally) read(out io.Reader) (seen bool) {
	outputs := map[string]*strings.Builder{}
	failed := map[string]bool{} // packages with a red test
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Action != "" {
			seen = true
			t.note(e, outputs, failed)
		}
		if err != nil {
			return seen
		}
	}
}

// note takes one event. A package that is red without a red test did not build, or
// did not end.
func (t *tally) note(e event, outputs map[string]*strings.Builder, failed map[string]bool) {
	name := strings.TrimSpace(e.Package + e.ImportPath + " " + e.Test)
	switch e.Action {
	case "output", "build-output":
		if outputs[name] == nil {
			outputs[name] = &strings.Builder{}
		}
		outputs[name].WriteString(e.Output)
	case "pass", "skip":
		delete(outputs, name)
		if e.Action == "pass" && e.Test != "" && !strings.Contains(e.Test, "/") {
			t.passed++
		}
	case "fail":
		if e.Test == "" && failed[e.Package] {
			return
		}
		failed[e.Package] = true
		t.red[name]++
		fmt.Printf("red: %s\n", name)
		if text := outputs[name]; text != nil {
			file := fmt.Sprintf("%s-%d.log", strings.NewReplacer("/", "_", " ", "-").Replace(name), t.red[name])
			if err := os.WriteFile(filepath.Join(t.logs, file), []byte(text.String()), 0o644); err != nil {
				fmt.Fprintln(os.Stderr, "stress:", err)
			}
		}
	}
}

func (t *tally) total() (n int) {
	for _, count := range t.red {
		n += count
	}
	return n
}

// print prints each red test with its count, the most frequent first.
func (t *tally) print(rounds int) {
	var names []string
	for name := range t.red {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if t.red[a] != t.red[b] {
			return t.red[b] - t.red[a]
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		fmt.Printf("%6d of %d  %s\n", t.red[name], rounds, name)
	}
	fmt.Printf("%d rounds, %d tests green, %d red\n", rounds, t.passed, t.total())
}

// burn starts a process that keeps one processor busy until ctx ends.
func burn(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "while :; do :; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the parent-death signal comes when the thread ends
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed when ctx ends
		}
	}()
	return <-started
}
