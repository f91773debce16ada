package daemon

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"holdfast/internal/guard"
	"holdfast/internal/notify"
)

// Program is what a daemon's main package gives to [Program.Run].
type Program struct {
	Name     string // holdfast-agent
	Version  string // as the build set it; may be empty
	Includes string // what --version says after the version; may be empty
	Example  string // a command line, the last part of --help
	Settings *Settings
	Level    slog.Leveler // what is logged; nil for info and what is worse

	// Sockets returns the sockets that the daemon listens on, or that systemd passes to
	// it. A Unix socket without a mode gets that of the mode that the daemon runs in.
	// The settings have their values when it is called.
	Sockets func() []notify.Socket

	// Assemble makes the daemon. It passes everything that it opens to [Parts.Own].
	Assemble func(*Parts) (*Service, error)
}

// Parts is what [Program.Run] has ready for a daemon that is being made.
type Parts struct {
	Version string // as a reader sees it
	Log     *slog.Logger
	Passed  map[string]net.Listener // the sockets that systemd passed, by name
	opened  []io.Closer
}

// Own registers c to be closed when the program ends, in reverse order of registration.
func (p *Parts) Own(c io.Closer) { p.opened = append(p.opened, c) }

func (p *Parts) close() {
	for i := len(p.opened) - 1; i >= 0; i-- {
		p.opened[i].Close() // the process ends: nothing is left to do about an error
	}
}

// Run runs the daemon until a signal stops it, or answers --help, --version or
// --explain. It returns the exit code: 0 when all went well, 2 for a command line or
// settings that are wrong, 1 for any other error.
func (p *Program) Run(args []string, stdout, stderr io.Writer) int {
	if err := guard.HardenProcess(); err != nil { // before any secret is in memory
		p.complain(stderr, err)
		return 1
	}
	done, err := p.configure(args, stdout)
	switch {
	case err != nil:
		p.complain(stderr, err)
		return 2
	case done:
		return 0
	}
	if err := p.serve(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: p.Level}))); err != nil {
		p.complain(stderr, err)
		return 1
	}
	return 0
}

// configure reads the command line and resolves the settings. It reports done when
// the command line asked for nothing but an answer.
func (p *Program) configure(args []string, stdout io.Writer) (done bool, err error) {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	p.Settings.Flags(flags)
	showVersion := flags.Bool("version", false, "print the version and exit")
	explain := flags.Bool("explain", false, "print the configuration and where each value comes from, and exit")
	if err := p.parse(flags, args); errors.Is(err, flag.ErrHelp) {
		return true, p.usage(stdout, flags)
	} else if err != nil {
		return false, err
	}
	if *showVersion {
		words := []any{p.Name, fullVersion(p.Version)}
		if p.Includes != "" {
			words = append(words, p.Includes)
		}
		_, err := fmt.Fprintln(stdout, words...)
		return true, err
	}
	if err := p.Settings.Resolve(flags, os.Getenv); err != nil {
		return false, err
	}
	if *explain {
		return true, p.Settings.Explain(stdout)
	}
	return false, nil
}

// serve makes the daemon and runs it. Sockets that systemd did not pass are opened
// last: no caller waits for a daemon that then cannot start.
func (p *Program) serve(log *slog.Logger) error {
	signals := listenForSignals() // before a start that takes time
	wanted := p.Sockets()
	setModes(wanted, p.Settings.system())
	passed, err := notify.Listeners(wanted...) // before the process opens files
	if err != nil {
		return err
	}
	parts := &Parts{Version: fullVersion(p.Version), Log: log, Passed: passed}
	defer parts.close()
	for _, l := range passed {
		parts.Own(l)
	}
	service, err := p.Assemble(parts)
	if err != nil {
		return err
	}
	sockets, err := openSockets(wanted, parts, p.Settings.system())
	if err != nil {
		return err
	}
	return service.run(sockets, signals, log)
}

// complain writes one fact, and the next step when there is one.
func (p *Program) complain(w io.Writer, err error) {
	fmt.Fprintf(w, "%s: error: %v\n", p.Name, err)
	var e interface {
		error
		Advice() string
	}
	if errors.As(err, &e) && e.Advice() != "" {
		fmt.Fprintf(w, "%s: hint: %s\n", p.Name, e.Advice())
	}
}

// fullVersion returns the release, or the commit of a build without one, and the
// version of Go.
func fullVersion(release string) string {
	if info, ok := debug.ReadBuildInfo(); ok && release == "" {
		release = info.Main.Version
	}
	return release + " (" + runtime.Version() + ")"
}
