package prompt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"holdfast/internal/bus"
)

// The desktop's notification service (Desktop Notifications Specification 1.2,
// section 9).
const (
	notifications     = "org.freedesktop.Notifications"
	notificationsPath = "/org/freedesktop/Notifications"
	urgencyCritical   = byte(2)
)

// maxNotice bounds how long a notice stays when its caller does not withdraw it.
const maxNotice = 2 * time.Minute

// notify shows a notice when ctx has not ended after [TouchDelay], and withdraws it
// when ctx ends. Failures go to the log alone: the device's own light still blinks.
func (p *Prompter) notify(ctx context.Context, s Subject) {
	delay := time.NewTimer(TouchDelay)
	defer delay.Stop()
	select {
	case <-ctx.Done():
		return
	case <-delay.C:
	}
	err := errNoDesktop
	if p.o.Mode != Terminal && !p.away(s) {
		err = p.show(ctx, s)
	}
	if err != nil && ctx.Err() == nil && p.o.Mode != Desktop {
		err = p.tell(s)
	}
	if err != nil && ctx.Err() == nil {
		p.log().Debug("no notice that a key waits for a touch", "key", s.Key, "error", err)
	}
}

// away reports whether the user is not at this machine's desktop.
func (p *Prompter) away(s Subject) bool {
	who, err := identify(s, p.uid)
	return p.o.Mode == Auto && err == nil && environOf(who).remote()
}

// tell writes a line on the caller's terminal, which is not removed later.
func (p *Prompter) tell(s Subject) error {
	if s.Verified {
		return errors.New("the program calls the agent itself")
	}
	who, err := identify(s, p.uid)
	if err != nil {
		return err
	}
	t, err := terminalOf(who, p.uid)
	if err != nil {
		return err
	}
	fd, err := t.open(p.uid)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, fmt.Appendf(nil, "\rholdfast: touch %s, for key %s\r\n", cmp.Or(named(s.Device), "your key"), named(s.Key)))
	return err
}

// show shows the notice until ctx ends. The connection to the bus stays open
// meanwhile: services drop the notices of clients that have left the bus.
func (p *Prompter) show(ctx context.Context, s Subject) error {
	session := p.session(ctx)
	if !session.graphical() {
		return errors.New("no desktop")
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	slow := time.AfterFunc(busLimit, end)
	conn, err := bus.Dial(life, session["DBUS_SESSION_BUS_ADDRESS"], bus.Options{UID: p.uid})
	slow.Stop()
	if err != nil {
		return err
	}
	defer conn.Close()
	service := conn.Object(notifications, notificationsPath)
	id, err := raise(ctx, service, s, p.touchText(s))
	if err != nil {
		return err
	}
	<-ctx.Done()
	return withdraw(life, service, id)
}

// raise asks the service to show the notice. It first asks for the service's name:
// a service that hangs would show the notice when it resumes, after the caller
// stopped waiting, and the notice would not be withdrawn.
func raise(ctx context.Context, service dbus.BusObject, s Subject, text string) (uint32, error) {
	asked, cancel := context.WithTimeout(ctx, busLimit)
	defer cancel()
	if err := service.CallWithContext(asked, notifications+".GetServerInformation", 0).Err; err != nil {
		return 0, err
	}
	// From here on a touch does not end the wait for the notice's number: without
	// the number the notice could not be withdrawn.
	asked, cancel = context.WithTimeout(context.WithoutCancel(ctx), busLimit)
	defer cancel()
	var id uint32
	err := service.CallWithContext(asked, notifications+".Notify", 0,
		"holdfast", uint32(0), "", "Touch "+cmp.Or(named(s.Device), "your key"), text, []string{},
		map[string]dbus.Variant{
			"urgency":  dbus.MakeVariant(urgencyCritical),
			"resident": dbus.MakeVariant(true),
			"category": dbus.MakeVariant("device"),
		}, int32(0)).Store(&id)
	return id, err
}

func withdraw(ctx context.Context, service dbus.BusObject, id uint32) error {
	ctx, cancel := context.WithTimeout(ctx, busLimit)
	defer cancel()
	return service.CallWithContext(ctx, notifications+".CloseNotification", 0, id).Err
}

// touchText says what the touch is for. It has none of the signs of markup, which
// some services interpret and others show.
func (p *Prompter) touchText(s Subject) string {
	who := "a program that has ended"
	if caller, err := identify(s, p.uid); err == nil {
		who = askedBy(caller, s)
	}
	return explain("touch for key", s, who)
}
