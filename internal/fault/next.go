package fault

import (
	"cmp"
	"fmt"
)

// A Step is a next step that programs act on. The list crosses the wire: it is
// append-only.
type Step string

// The steps. Each names what it needs from [Next].
const (
	Unlock     Step = "unlock"      // unlock Key with its PIN
	Enroll     Step = "enroll"      // get a certificate for Key, through Profile where there is one
	Adopt      Step = "adopt"       // make a record for the key in Slot of Card, as Key
	SetUpCard  Step = "set-up-card" // set up Card: PIN, PUK and management key
	Unblock    Step = "unblock"     // give Card a new PIN with its PUK
	InsertCard Step = "insert-card" // insert Card
	StartPCSCD Step = "start-pcscd" // install and start the smart card daemon
	AllowPCSCD Step = "allow-pcscd" // let this user use cards: polkit(8)
	ShareCard  Step = "share-card"  // configure gpg's card daemon to share the reader
	EnrollNew  Step = "enroll-new"  // create Key and get a certificate for it, through Profile where there is one
)

// Steps lists every step in the order in which it was added.
func Steps() []Step {
	return []Step{Unlock, Enroll, Adopt, SetUpCard, Unblock, InsertCard, StartPCSCD, AllowPCSCD, ShareCard, EnrollNew}
}

// Next is the next step after a failure: what to do, and to what. The zero value
// means that no program can act on the failure. Programs compare Do; text for
// people is made once, where it is shown, by [Next.String].
type Next struct {
	Do      Step   `json:"do"`
	Key     string `json:"key,omitempty"`
	Profile string `json:"profile,omitempty"`
	Card    uint32 `json:"card,omitempty"` // serial number; 0 where any card is meant
	Slot    string `json:"slot,omitempty"`
}

// String returns the step as a user reads it: the command to run where there is
// one, with words in capitals for arguments that are unknown. It is empty for the
// zero value.
func (n Next) String() string {
	switch n.Do {
	case Unlock:
		return "holdfast unlock " + cmp.Or(n.Key, "NAME")
	case Enroll:
		return n.enroll()
	case EnrollNew:
		return n.enroll() + " --create"
	case Adopt:
		return "holdfast key adopt " + cmp.Or(n.Key, "NAME") + " --slot " + cmp.Or(n.Slot, "SLOT") + n.card()
	case SetUpCard:
		return "holdfast piv setup" + n.card()
	case Unblock:
		return "holdfast piv unblock" + n.card()
	case InsertCard:
		if n.Card == 0 {
			return "insert the card"
		}
		return fmt.Sprintf("insert card %d", n.Card)
	case StartPCSCD:
		return "install pcscd, then: systemctl enable --now pcscd.socket"
	case AllowPCSCD:
		return "see polkit(8): the action is org.debian.pcsc-lite.access_pcsc"
	case ShareCard:
		return "let other programs share the reader: pcsc-shared and disable-ccid in ~/.gnupg/scdaemon.conf"
	}
	return ""
}

func (n Next) enroll() string {
	command := "holdfast enroll kubernetes " + cmp.Or(n.Profile, "PROFILE")
	if n.Key != "" {
		command += " --key " + n.Key
	}
	return command
}

func (n Next) card() string {
	if n.Card == 0 {
		return ""
	}
	return fmt.Sprintf(" --card %d", n.Card)
}
