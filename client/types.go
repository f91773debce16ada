package client

import (
	"holdfast/internal/agentwire"
	"holdfast/internal/dial"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/metrics"
)

// The replies and parameters of the agent. The interface file io.holdfast.Agent.varlink says
// what each member means.
type (
	KeyInfo    = agentwire.Key        // a key's description
	Owner      = agentwire.Owner      // the user that a key belongs to
	Place      = agentwire.Place      // where on a card a key is
	Confirm    = agentwire.Confirm    // when a user has to confirm a key's use
	Server     = agentwire.Server     // a server that a key is bound to
	Device     = agentwire.Device     // the state of a TPM or of a card
	Capability = agentwire.Capability // one kind of key that a device can make
	Card       = agentwire.Card       // a card in a reader
	CardSlot   = agentwire.CardSlot   // one of a card's slots
	Notice     = agentwire.Notice     // a fact that status shows, and the next step
	Caller     = agentwire.Caller     // what the agent knows of the calling process
	Reported   = agentwire.Reported   // a process that a broker asks for; see [OnBehalfOf]
	Event      = agentwire.WatchReply // a change that [Client.Watch] announces

	CreateKeyParameters   = agentwire.CreateKeyParameters
	OnCard                = agentwire.OnCard
	AdoptKeyParameters    = agentwire.AdoptKeyParameters
	UnlockKeyParameters   = agentwire.UnlockKeyParameters
	UnlockKeyReply        = agentwire.UnlockKeyReply
	SetUpCardParameters   = agentwire.SetUpCardParameters
	ChangeCardParameters  = agentwire.ChangeCardParameters
	UnblockCardParameters = agentwire.UnblockCardParameters
	CheckPolicyParameters = agentwire.CheckPolicyParameters
	CheckPolicyReply      = agentwire.CheckPolicyReply
	Status                = agentwire.GetStatusReply
	AuditVerification     = agentwire.VerifyAuditReply

	Metric = metrics.Metric // a counter, gauge or histogram with its samples
	Sample = metrics.Sample // one labelled value of a metric
	Bucket = metrics.Bucket // one bucket of a histogram
)

// The purposes of a key, as [KeyInfo] has them.
const (
	PurposeTLSClient = string(keys.TLSClient)
	PurposeTLSServer = string(keys.TLSServer)
)

// An Error is a failure that the agent or this package reports: its kind, one fact,
// and the next step ([Error.Advice] in words, its Next for programs). Ask for a
// kind with errors.Is(err, &client.Error{Kind: client.Busy}) or with [KindOf].
type Error = fault.Error

// A Kind says what went wrong in one of the few ways that a caller can act on.
type Kind = fault.Kind

// The kinds of failure.
const (
	Denied               = fault.Denied               // policy does not allow it, or there is no such key: the two look the same
	BadRequest           = fault.BadRequest           // the request or the message in it is malformed
	WrongPurpose         = fault.WrongPurpose         // the key is for another purpose
	NotFound             = fault.NotFound             // an object other than a key is missing
	Busy                 = fault.Busy                 // the queue or the device is full; RetryAfter says when to try again
	Deadline             = fault.Deadline             // the device did not answer in time
	PINRequired          = fault.PINRequired          // the key is locked with a PIN
	PINBlocked           = fault.PINBlocked           // no PIN tries are left, or the agent may not spend those that are
	TouchTimeout         = fault.TouchTimeout         // the device was not touched in time
	ConfirmationRequired = fault.ConfirmationRequired // the key's use was not confirmed
	DeviceAbsent         = fault.DeviceAbsent         // there is no such device now
	DeviceLocked         = fault.DeviceLocked         // dictionary-attack lockout; RetryAfter says for how long
	DeviceWedged         = fault.DeviceWedged         // the device accepts commands and does not answer
	DeviceFailed         = fault.DeviceFailed         // the device reports that it failed
	IdentityChanged      = fault.IdentityChanged      // the device was cleared or is another one
	KeyLost              = fault.KeyLost              // the device no longer loads this key
	KeyMismatch          = fault.KeyMismatch          // a signature does not verify under the recorded public key
	Unsupported          = fault.Unsupported          // this agent or device cannot do it
	Internal             = fault.Internal             // a defect or a failing disk
)

// KindOf returns the kind of the first [Error] in err's chain, Internal for any
// other error, and the empty Kind for nil.
func KindOf(err error) Kind { return fault.KindOf(err) }

// Next is the next step after a failure, for programs; see [Error].
type Next = fault.Next

// A Step says what the next step is.
type Step = fault.Step

// An UnreachableError says that there is no agent to ask: none listens, its socket
// is not safe to use, or the connection was lost. It has the reason and a hint.
// Every answer of an agent that failed is an [*Error].
type UnreachableError = dial.UnreachableError
