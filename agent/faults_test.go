package agent

import "testing"

func TestKeyFaults(t *testing.T) {
	var f keyFaults
	alice, bob := keyID{Owner: 1, Name: "alice"}, keyID{Owner: 2, Name: "bob"}
	f.flaws.Store(alice, "wrong signature")
	f.flaws.Store(bob, "wrong signature")
	if f.of(alice) == "" || f.of(keyID{Owner: 2, Name: "alice"}) != "" {
		t.Error("a fault is one key's")
	}
	if f.flaws.Delete(alice); f.of(alice) != "" || f.of(bob) == "" {
		t.Error("Delete is for one key")
	}
	if f.flaws.Clear(); f.of(bob) != "" {
		t.Error("Clear is for all keys")
	}
}
