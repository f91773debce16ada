// Command holdfast is the user's tool: it makes keys in the TPM or on a card
// through an agent, gets certificates for them, tries them out, sets cards up, and
// explains what an agent, a device or a policy is doing.
//
// Start at [run]; commands.go lists the commands, one file each. Answers go to
// stdout, and everything for people alone to stderr. Errors are one fact and one
// hint, and exit.go gives each its exit code.
//
// The command holds no key and no secret but PINs and the like on their way to the
// agent, which come from a terminal or a file descriptor, never from its arguments or
// its environment. The agent decides what it may do.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr, openTerminal})
	stop()
	os.Exit(code)
}

// streams holds the inputs and outputs of a command.
type streams struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       func() (*os.File, error) // opens the terminal of the user
}

func openTerminal() (*os.File, error) { return os.OpenFile("/dev/tty", os.O_RDWR, 0) }

// app is one run of the tool.
type app struct {
	streams
	socket      string // --socket
	asJSON      bool   // --json
	machine     machine
	timeouts    timeouts
	descriptors map[int]*os.File // that secrets are read from
	alive       atomic.Bool      // the terminal shows the progress of long work
	running     bool             // the command line was understood; errors are no longer about it
}

// run carries out one command line and returns its exit code.
func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s, timeouts: usualTimeouts()}
	root := a.commands()
	root.SetArgs(append([]string{}, args...)) // not nil: cobra would take os.Args
	root.SetIn(s.stdin)
	root.SetOut(s.stdout)
	root.SetErr(s.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.running {
		err = usage(cmd, err)
	}
	return a.report(err)
}

// action returns the function that cobra runs once the command line is parsed.
func (a *app) action(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.running = true
		return f(cmd.Context(), args)
	}
}

// asking is action for a command that needs the agent.
func (a *app) asking(f func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return a.askingWithin(answerTime, f)
}

// askingWithin is asking for a command whose calls are answered within limit.
func (a *app) askingWithin(limit time.Duration, f func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return a.action(func(ctx context.Context, args []string) error {
		c, err := a.dialFor(ctx, limit)
		if err != nil {
			return err
		}
		defer c.Close()
		if err = f(ctx, c, args); len(args) > 0 { // the first is the key's name
			err = aboutKey(args[0], meantKey(ctx, c, args[0], err))
		}
		return err
	})
}

// The longest that the agent works on a request, and on a new key, is 60 s and
// 5 min; one that takes longer hangs.
const (
	answerTime = 70 * time.Second
	createTime = 6 * time.Minute
)

// fromAgent returns the agent's answer to one call, which it gives within limit.
func fromAgent[T any](ctx context.Context, a *app, limit time.Duration, call func(c *client.Client) (T, error)) (answer T, err error) {
	c, err := a.dialFor(ctx, limit)
	if err != nil {
		return answer, err
	}
	defer c.Close()
	return call(c)
}

func (a *app) dial(ctx context.Context) (*client.Client, error) { return a.dialFor(ctx, answerTime) }

// dialFor is dial for calls that are answered within limit.
func (a *app) dialFor(ctx context.Context, limit time.Duration) (*client.Client, error) {
	return client.Dial(ctx, &client.Options{Socket: a.socket, Timeout: limit, Touch: a.touchWanted, Waiting: a.stillWaiting})
}
