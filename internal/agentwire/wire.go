// Package agentwire holds the Go types of the varlink interface io.holdfast.Agent:
// the parameters and replies of its methods, and its errors. The agent and its
// clients share it, so that the two cannot drift apart; a test holds it to the
// interface file, which is the specification.
//
// Start at io.holdfast.Agent.varlink beside this file, which says what each member
// means. Byte slices are base64 on the wire. Pointers and omitempty mark
// the members that the interface file writes with a question mark.
package agentwire

import (
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/metrics"
)

// Interface is the name of the agent's varlink interface.
const Interface = "io.holdfast.Agent"

// The methods, as they are called on the wire.
const (
	ListKeys               = Interface + ".ListKeys"
	GetKey                 = Interface + ".GetKey"
	CreateKey              = Interface + ".CreateKey"
	DeleteKey              = Interface + ".DeleteKey"
	ExportKey              = Interface + ".ExportKey"
	AdoptKey               = Interface + ".AdoptKey"
	BindKey                = Interface + ".BindKey"
	InstallCertificate     = Interface + ".InstallCertificate"
	SignTLSClient          = Interface + ".SignTLSClient"
	SignTLSServer          = Interface + ".SignTLSServer"
	SignCertificateRequest = Interface + ".SignCertificateRequest"
	UnlockKey              = Interface + ".UnlockKey"
	LockKeys               = Interface + ".LockKeys"
	Seal                   = Interface + ".Seal"
	Unseal                 = Interface + ".Unseal"
	DeleteSealed           = Interface + ".DeleteSealed"
	ListCards              = Interface + ".ListCards"
	SetUpCard              = Interface + ".SetUpCard"
	ChangeCardPIN          = Interface + ".ChangeCardPIN"
	ChangeCardPUK          = Interface + ".ChangeCardPUK"
	UnblockCard            = Interface + ".UnblockCard"
	GetMetrics             = Interface + ".GetMetrics"
	GetStatus              = Interface + ".GetStatus"
	CheckPolicy            = Interface + ".CheckPolicy"
	TailAudit              = Interface + ".TailAudit"
	VerifyAudit            = Interface + ".VerifyAudit"
	Watch                  = Interface + ".Watch"
)

// Key is a key as its users see it.
type Key struct {
	Name          string     `json:"name"`
	Purpose       string     `json:"purpose"`
	Backend       string     `json:"backend"`
	Algorithm     string     `json:"algorithm"`
	RSABits       int        `json:"rsaBits,omitempty"`
	Scheme        string     `json:"scheme"`
	Owner         Owner      `json:"owner"`
	Created       time.Time  `json:"created"`
	PublicKey     []byte     `json:"publicKey"`
	Chain         [][]byte   `json:"chain"`
	Imported      bool       `json:"imported"`
	Persistent    bool       `json:"persistent"`
	PIN           bool       `json:"pin"`
	UnlockedUntil *time.Time `json:"unlockedUntil,omitempty"`
	TLS12         bool       `json:"tls12"`
	Servers       []Server   `json:"servers"`
	Fault         string     `json:"fault,omitempty"`
	Place         *Place     `json:"place,omitempty"`
	Confirm       *Confirm   `json:"confirm,omitempty"`
}

// Place is where on a card a key is, and what using it takes.
type Place struct {
	Card        uint32 `json:"card"`
	Slot        string `json:"slot"`
	PINPolicy   string `json:"pinPolicy"`
	TouchPolicy string `json:"touchPolicy"`
	Attested    bool   `json:"attested"`
}

// Confirm is when a user must confirm the use of a key.
type Confirm struct {
	When    string `json:"when"` // once, process or always
	Minutes int    `json:"minutes,omitempty"`
}

// OnCard says where on which card to make a key.
type OnCard struct {
	Card            uint32 `json:"card,omitempty"`
	Slot            string `json:"slot,omitempty"`
	PINPolicy       string `json:"pinPolicy,omitempty"`
	TouchPolicy     string `json:"touchPolicy,omitempty"`
	Overwrite       bool   `json:"overwrite,omitempty"`
	AllowUnattested bool   `json:"allowUnattested,omitempty"`
	ManagementKey   []byte `json:"managementKey,omitempty"`
}

// Owner is the user that a key belongs to.
type Owner struct {
	UID  uint32 `json:"uid"`
	User string `json:"user,omitempty"`
}

// Server is a server that a key is bound to.
type Server struct {
	Address string `json:"address"` // HOST:PORT
	CA      string `json:"ca"`      // certificates, PEM
}

// Device is the state of a device.
type Device struct {
	Backend     string       `json:"backend"`
	Device      string       `json:"device"`
	State       string       `json:"state"`
	Since       time.Time    `json:"since"`
	Reason      string       `json:"reason,omitempty"`
	Hint        string       `json:"hint,omitempty"`
	Next        *fault.Next  `json:"next,omitempty"`
	LockedUntil *time.Time   `json:"lockedUntil,omitempty"`
	Software    bool         `json:"software"`
	TriesLeft   *int         `json:"triesLeft,omitempty"`
	Maker       string       `json:"maker,omitempty"`
	Can         []Capability `json:"can"`
}

// Capability is one kind of key that a device can make.
type Capability struct {
	Algorithm string `json:"algorithm"`
	RSABits   int    `json:"rsaBits,omitempty"`
}

// Notice is one fact that status and doctor show, and the next step.
type Notice struct {
	Message string      `json:"message"`
	Hint    string      `json:"hint,omitempty"`
	Next    *fault.Next `json:"next,omitempty"`
	Problem bool        `json:"problem,omitempty"` // something does not work; else it is worth knowing
}

// Caller is the caller as the agent identified it.
type Caller struct {
	UID    uint32   `json:"uid"`
	User   string   `json:"user,omitempty"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups"`
	PID    int32    `json:"pid"`
	Unit   string   `json:"unit,omitempty"`
}

// Empty is the parameters or the reply of a method that has none.
type Empty struct{}

// NameParameters is the parameters of GetKey, DeleteKey and ExportKey.
type NameParameters struct {
	Name string `json:"name"`
}

// KeyReply is the reply of every method that answers with one key.
type KeyReply struct {
	Key Key `json:"key"`
}

// ListKeysParameters is the parameters of ListKeys.
type ListKeysParameters struct {
	All bool `json:"all,omitempty"`
}

// ListKeysReply is the reply of ListKeys.
type ListKeysReply struct {
	Keys []Key `json:"keys"`
}

// CreateKeyParameters is the parameters of CreateKey.
type CreateKeyParameters struct {
	Name       string   `json:"name"`
	Purpose    string   `json:"purpose"`
	Backend    string   `json:"backend,omitempty"`
	Algorithm  string   `json:"algorithm,omitempty"`
	RSABits    int      `json:"rsaBits,omitempty"`
	Persistent bool     `json:"persistent,omitempty"`
	PIN        []byte   `json:"pin,omitempty"`
	TLS12      bool     `json:"tls12,omitempty"`
	OnCard     *OnCard  `json:"onCard,omitempty"`
	Confirm    *Confirm `json:"confirm,omitempty"`
	RequestID  string   `json:"requestID,omitempty"`
}

// ExportKeyReply is the reply of ExportKey.
type ExportKeyReply struct {
	File string `json:"file"`
}

// AdoptKeyParameters is the parameters of AdoptKey.
type AdoptKeyParameters struct {
	Name          string   `json:"name"`
	Purpose       string   `json:"purpose"`
	File          string   `json:"file"`
	Backend       string   `json:"backend,omitempty"`
	PIN           []byte   `json:"pin,omitempty"`
	AllowImported bool     `json:"allowImported,omitempty"`
	Persistent    bool     `json:"persistent,omitempty"`
	TLS12         bool     `json:"tls12,omitempty"`
	Confirm       *Confirm `json:"confirm,omitempty"`
	RequestID     string   `json:"requestID,omitempty"`
}

// BindKeyParameters is the parameters of BindKey.
type BindKeyParameters struct {
	Name    string   `json:"name"`
	Servers []Server `json:"servers"`
}

// InstallCertificateParameters is the parameters of InstallCertificate.
type InstallCertificateParameters struct {
	Name          string   `json:"name"`
	Chain         [][]byte `json:"chain"`
	PIN           []byte   `json:"pin,omitempty"`
	ManagementKey []byte   `json:"managementKey,omitempty"`
}

// SignParameters is the parameters of SignTLSServer and SignCertificateRequest.
type SignParameters struct {
	Key       string `json:"key"`
	Scheme    string `json:"scheme"`
	Message   []byte `json:"message"`
	RequestID string `json:"requestID,omitempty"`
}

// SignTLSClientParameters is the parameters of SignTLSClient.
type SignTLSClientParameters struct {
	Key        string    `json:"key"`
	Scheme     string    `json:"scheme"`
	Message    []byte    `json:"message"`
	Evidence   *Evidence `json:"evidence,omitempty"`
	OnBehalfOf *Reported `json:"onBehalfOf,omitempty"`
	RequestID  string    `json:"requestID,omitempty"`
}

// Reported is the process for which a broker says that it asks.
type Reported struct {
	UID   uint32 `json:"uid"`
	PID   int32  `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot, as in /proc/PID/stat
	Unit  string `json:"unit,omitempty"`
}

// Evidence lets the agent verify the server that it signs for.
type Evidence struct {
	Handshake []byte `json:"handshake"`
	Secret    []byte `json:"secret"`
}

// SignReply is the reply of the methods that sign.
type SignReply struct {
	Signature []byte `json:"signature"`
}

// UnlockKeyParameters is the parameters of UnlockKey.
type UnlockKeyParameters struct {
	Name       string    `json:"name"`
	PIN        []byte    `json:"pin,omitempty"`
	Seconds    int       `json:"seconds,omitempty"`
	OnBehalfOf *Reported `json:"onBehalfOf,omitempty"`
}

// UnlockKeyReply is the reply of UnlockKey.
type UnlockKeyReply struct {
	UnlockedUntil time.Time `json:"unlockedUntil"`
}

// LockKeysParameters is the parameters of LockKeys.
type LockKeysParameters struct {
	Name string `json:"name,omitempty"`
}

// SealParameters is the parameters of Seal.
type SealParameters struct {
	Name      string `json:"name"`
	Secret    []byte `json:"secret"`
	Backend   string `json:"backend,omitempty"`
	Replace   bool   `json:"replace,omitempty"`
	RequestID string `json:"requestID,omitempty"`
}

// UnsealReply is the reply of Unseal.
type UnsealReply struct {
	Secret []byte `json:"secret"`
}

// Card describes one card, or a reader.
type Card struct {
	Serial              uint32      `json:"serial,omitempty"`
	Reader              string      `json:"reader"`
	Firmware            string      `json:"firmware,omitempty"`
	State               string      `json:"state"`
	Reason              string      `json:"reason,omitempty"`
	Hint                string      `json:"hint,omitempty"`
	Next                *fault.Next `json:"next,omitempty"`
	PINTries            *int        `json:"pinTries,omitempty"`
	PUKTries            *int        `json:"pukTries,omitempty"`
	DefaultPIN          *bool       `json:"defaultPIN,omitempty"`
	DefaultPUK          *bool       `json:"defaultPUK,omitempty"`
	DefaultManagement   *bool       `json:"defaultManagement,omitempty"`
	ProtectedManagement bool        `json:"protectedManagement"`
	Attests             *bool       `json:"attests,omitempty"`
	Notes               []Notice    `json:"notes"`
	Slots               []CardSlot  `json:"slots"`
}

// CardSlot is one slot of a card.
type CardSlot struct {
	Slot        string `json:"slot"`
	Algorithm   string `json:"algorithm,omitempty"`
	RSABits     int    `json:"rsaBits,omitempty"`
	PINPolicy   string `json:"pinPolicy,omitempty"`
	TouchPolicy string `json:"touchPolicy,omitempty"`
	Generated   *bool  `json:"generated,omitempty"`
	PublicKey   []byte `json:"publicKey,omitempty"`
	Certificate []byte `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"` // the name of the caller's key that is in it
	Taken       bool   `json:"taken"`         // it holds a key of some user
}

// ListCardsReply is the reply of ListCards.
type ListCardsReply struct {
	Cards []Card `json:"cards"`
}

// SetUpCardParameters is the parameters of SetUpCard.
type SetUpCardParameters struct {
	Card             uint32 `json:"card"`
	OldPIN           []byte `json:"oldPIN,omitempty"`
	OldPUK           []byte `json:"oldPUK,omitempty"`
	OldManagementKey []byte `json:"oldManagementKey,omitempty"`
	PIN              []byte `json:"pin"`
	PUK              []byte `json:"puk"`
}

// ChangeCardParameters is the parameters of ChangeCardPIN and ChangeCardPUK.
type ChangeCardParameters struct {
	Card uint32 `json:"card"`
	Old  []byte `json:"old"`
	New  []byte `json:"new"`
}

// UnblockCardParameters is the parameters of UnblockCard.
type UnblockCardParameters struct {
	Card uint32 `json:"card"`
	PUK  []byte `json:"puk"`
	PIN  []byte `json:"pin"`
}

// GetMetricsReply is the reply of GetMetrics.
type GetMetricsReply struct {
	Metrics []metrics.Metric `json:"metrics"`
}

// GetStatusReply is the reply of GetStatus.
type GetStatusReply struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Mode    string    `json:"mode"`   // user or system
	Policy  string    `json:"policy"` // the policy file, or "built-in"
	Audit   string    `json:"audit"`  // the audit file
	Caller  Caller    `json:"caller"`
	Devices []Device  `json:"devices"`
	Keys    int       `json:"keys"` // how many the caller may see
	Notices []Notice  `json:"notices"`
}

// CheckPolicyParameters is the parameters of CheckPolicy.
type CheckPolicyParameters struct {
	UID       uint32   `json:"uid"`
	GIDs      []uint32 `json:"gids"`
	Unit      string   `json:"unit,omitempty"`
	Key       string   `json:"key,omitempty"`
	Operation string   `json:"operation"`
	ForUID    *uint32  `json:"forUID,omitempty"`  // the user that the caller would report
	ForUnit   string   `json:"forUnit,omitempty"` // with ForUID
}

// CheckPolicyReply is the reply of CheckPolicy.
type CheckPolicyReply struct {
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule"`
	Reason  string `json:"reason"`
}

// TailAuditParameters is the parameters of TailAudit.
type TailAuditParameters struct {
	Records int `json:"records,omitempty"` // 20 when not given
}

// TailAuditReply is the reply of TailAudit.
type TailAuditReply struct {
	Records []string `json:"records"`
}

// VerifyAuditReply is the reply of VerifyAudit.
type VerifyAuditReply struct {
	Records int    `json:"records"`
	Head    string `json:"head"`
}

// WatchReply is one reply of Watch.
type WatchReply struct {
	What  string `json:"what"`
	Name  string `json:"name,omitempty"`
	State string `json:"state,omitempty"`
}
