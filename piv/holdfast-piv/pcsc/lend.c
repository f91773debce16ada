#include <winscard.h>

// The linker's --wrap=SCardConnect gives piv-go this function in place of PC/SC's own.
// piv-go connects to a card for itself alone, and offers no other way. It gets the
// connection that Card.Lend has lent instead, and none without that.

static SCARDHANDLE lent;

void holdfast_lend(SCARDHANDLE card) { lent = card; }

LONG __wrap_SCardConnect(SCARDCONTEXT context, LPCSTR reader, DWORD share, DWORD protocols, LPSCARDHANDLE card, LPDWORD active)
{
	if (lent == 0)
		return SCARD_E_SHARING_VIOLATION;
	*card = lent;
	*active = SCARD_PROTOCOL_T1;
	return SCARD_S_SUCCESS;
}
