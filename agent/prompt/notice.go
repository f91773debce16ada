package prompt

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/godbus/dbus/v5"
)

// The desktop's notification service (Desktop Notifications Specification 1.2,
// section 9).
const (
	notifications     = "org.freedesktop.Notifications"
	notificationsPath = "/org/freedesktop/Notifications"
	urgencyCritical   = byte(2)
)

// maxNotice bounds how long a notice stays when nobody withdraws it.
const maxNotice = 2 * time.Minute

// notify shows a notice when ctx has not ended after [TouchDelay], and withdraws
// it when ctx ends. Whatever does not work is for the log alone: the device's own
// light still blinks.
func (p *Prompter) notify(ctx context.Context, s Subject) {
	delay := time.NewTimer(TouchDelay)
	defer delay.Stop()
	select {
	case <-ctx.Done():
		return
	case <-delay.C:
	}
	if err := p.show(ctx, s); err != nil && ctx.Err() == nil {
		p.log().Debug("no notice that a key waits for a touch", "key", s.Key, "error", err)
	}
}

// show shows the notice until ctx ends. The connection to the bus lasts as long:
// services drop the notices of those who have left the bus.
func (p *Prompter) show(ctx context.Context, s Subject) error {
	session := p.session(ctx)
	if !session.graphical() {
		return errors.New("no desktop")
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	slow := time.AfterFunc(busLimit, end)
	conn, err := dialBus(life, session["DBUS_SESSION_BUS_ADDRESS"], p.uid)
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

// raise has the notice shown. The service is asked for its name before: one that
// does not answer would show the notice when it wakes up, and there would be
// nobody left to withdraw it.
func raise(ctx context.Context, service dbus.BusObject, s Subject, text string) (uint32, error) {
	asked, cancel := context.WithTimeout(ctx, busLimit)
	defer cancel()
	if err := service.CallWithContext(asked, notifications+".GetServerInformation", 0).Err; err != nil {
		return 0, err
	}
	// From here on a touch that comes does not stop the wait for the notice's
	// number: without it the notice could not be withdrawn.
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
		who = askedBy(caller, s.Verified)
	}
	return explain("touch for key", s, who)
}
