# Another program on the card, through libpcsclite: holder.py idle|transaction|exclusive|ask
# READER. It prints a line when it holds the card, and lets go at the end of its input.
# With ask, it begins a transaction for each line of its input, and prints whether it found
# a PIN or the management key proved on the card.
import sys
from smartcard.scard import *

mode, reader = sys.argv[1:]


def must(answer):
    code, rest = (answer[0], answer[1:]) if isinstance(answer, (list, tuple)) else (answer, ())
    if code != SCARD_S_SUCCESS:
        sys.exit("PC/SC error %08x" % (code & 0xFFFFFFFF))
    return rest


def transmit(*apdu):
    return must(SCardTransmit(card, SCARD_PCI_T1, list(apdu)))[0][-2:]


def begin():
    while SCardBeginTransaction(card) != SCARD_S_SUCCESS:  # the card was reset
        must(SCardReconnect(card, SCARD_SHARE_SHARED, SCARD_PROTOCOL_T1, SCARD_LEAVE_CARD))


(context,) = must(SCardEstablishContext(SCARD_SCOPE_SYSTEM))
share = SCARD_SHARE_EXCLUSIVE if mode == "exclusive" else SCARD_SHARE_SHARED
card, protocol = must(SCardConnect(context, reader, share, SCARD_PROTOCOL_T1))
if mode == "transaction":
    begin()
print("holds", flush=True)
for line in sys.stdin:
    begin()
    pin = transmit(0, 0x20, 0, 0x80)
    write = transmit(0, 0xDB, 0x3F, 0xFF, 9, 0x5C, 3, 0x5F, 0xFF, 0x42, 0x53, 2, 1, 1)
    if pin == [0x6D, 0x00]:  # another application is selected, and has no PIN
        transmit(0, 0xA4, 4, 0, 5, 0xA0, 0, 0, 3, 8)
        pin = transmit(0, 0x20, 0, 0x80)
    must(SCardEndTransaction(card, SCARD_LEAVE_CARD))
    print("proved" if [0x90, 0x00] in (pin, write) else "nothing", flush=True)
