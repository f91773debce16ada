package store

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/test/pace"

	"go.uber.org/goleak"
)

// changeForever makes the test binary a process that changes a store until the
// test kills it.
const changeForever = "STORE_TEST_CHANGE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(changeForever); dir != "" {
		if err := change(dir); err != nil {
			fmt.Println("error", err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// change makes, changes and deletes four keys in turn, saying before and after
// each change what the key's generation is: "try NAME OLD NEW", then "done".
func change(dir string) error {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		name := fmt.Sprint("key", n%4)
		r, ok := s.Get(1000, name)
		step := func() error { return s.Create(good(name)) }
		next := max(r.Generation, s.ledger.Generations[id{1000, name}.String()]) + 1
		switch {
		case ok && n/4%3 == 2:
			next, step = 0, func() error { return s.Delete(1000, name) }
		case ok:
			step = func() error { return s.Replace(r) }
		}
		fmt.Println("try", name, r.Generation, next)
		if err := step(); err != nil {
			return err
		}
		fmt.Println("done")
	}
}

// TestKill kills such a process at some moment, many times on one directory, and
// wants each key to be as it was acknowledged, or as the change in flight would
// have made it: old or new, and never neither. It goes on until so many
// kills have hit a change.
func TestKill(t *testing.T) {
	hits := pace.Share(20, 100)
	dir := quick(t)
	rng := rand.New(rand.NewPCG(3, 4))
	acked := map[string]uint64{}
	changes, inFlight := 0, 0
	round := 0
	for ; inFlight < hits && round < 20*hits; round++ {
		name, old, next := runAndKill(t, dir, acked, &changes, rng.IntN(4), time.Duration(rng.IntN(1500))*time.Microsecond)
		s := open(t, dir)
		clean(t, s)
		if name != "" {
			inFlight++
			got, _ := s.Get(1000, name)
			if got.Generation != old && got.Generation != next {
				t.Fatalf("round %d: %s has generation %d, want %d or %d", round, name, got.Generation, old, next)
			}
			acked[name] = got.Generation
		}
		for name, want := range acked {
			if got, _ := s.Get(1000, name); got.Generation != want {
				t.Fatalf("round %d: %s has generation %d, want %d", round, name, got.Generation, want)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills, %d of them within a change, %d changes acknowledged", round, inFlight, changes)
	if inFlight < hits || changes == 0 {
		t.Errorf("%d of %d kills hit a change, want %d, beside changes that were acknowledged", inFlight, round, hits)
	}
}

// runAndKill starts a process, kills it some time after it began the change that
// follows the given number of others, notes in acked what it reported as done, and
// returns the change in flight.
func runAndKill(t *testing.T, dir string, acked map[string]uint64, changes *int, others int, after time.Duration) (name string, old, next uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), changeForever+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var timer *time.Timer
	begun := *changes
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if timer == nil && *changes-begun >= others {
			timer = time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
		switch words := strings.Fields(lines.Text()); words[0] {
		case "try":
			name = words[1]
			old, _ = strconv.ParseUint(words[2], 10, 64)
			next, _ = strconv.ParseUint(words[3], 10, 64)
		case "done":
			acked[name] = next
			name = ""
			*changes++
		default:
			t.Errorf("the process: %s", lines.Text())
		}
	}
	if timer != nil {
		timer.Stop()
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("the process was not killed: %v", err)
	}
	return name, old, next
}
