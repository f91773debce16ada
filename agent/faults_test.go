package agent

import "testing"

func TestKeyFaults(t *testing.T) {
	var f keyFaults
	alice, bob := keyID{Owner: 1, Name: "alice"}, keyID{Owner: 2, Name: "bob"}
	f.set(alice, "wrong signature")
	f.set(bob, "wrong signature")
	if f.of(alice) == "" || f.of(keyID{Owner: 2, Name: "alice"}) != "" {
		t.Error("a fault is one key's")
	}
	if f.drop(alice); f.of(alice) != "" || f.of(bob) == "" {
		t.Error("drop is for one key")
	}
	if f.clear(); f.of(bob) != "" {
		t.Error("clear is for all keys")
	}
}
