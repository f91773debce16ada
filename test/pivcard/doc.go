// Package pivcard gives a test a YubiKey's PIV application of its own behind
// the real pcscd: a card in Go that speaks to the virtual reader vpcd, and a
// private pcscd per test, in namespaces of its own.
//
// Start at [Start], which returns a [Rig]; a program that is no test takes
// [New]. Clients find it by [Rig.Env]. A [Card] goes into a reader by
// [Rig.Insert] and out by [Rig.Remove]; [Card.Order] orders a [Fault];
// [Card.Count] and [Card.PINTries] tell what the card was sent.
//
// libpcsclite reads the socket's path once in a process: a test that calls it
// in its own process, by piv-go for example, can use one rig; programs that it
// starts have each their own environment. A reader stays when its card is
// taken out, while a real YubiKey takes its reader along. While a card is
// silent, pcscd waits for ever for it, where a USB reader would give up: until
// [Card.Release] or [Rig.Remove] nobody else gets at this card, even when the
// client that waited has been killed.
//
// The card protects nothing: its keys and its PIN lie in the memory of the
// test. It says nothing about the speed or the safety of a real one.
package pivcard
