package keys

import "math/big"

// rocaPrimes are the small primes of the ROCA fingerprint: Infineon's library
// made primes of the form k*M + (65537^a mod M), with M their product at
// least (Nemec et al., The Return of Coppersmith's Attack, section 2).
func rocaPrimes() []uint64 {
	return []uint64{
		3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73,
		79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
	}
}

// ROCA reports whether the RSA modulus n looks like one that Infineon's library
// made, so that the private key can be computed from it (CVE-2017-15361): its
// remainder by each small prime is a power of 65537. A sound modulus does so
// with a probability below 2^-27. TPMs and YubiKeys have had that library, so
// every backend checks.
func ROCA(n *big.Int) bool {
	var remainder, prime big.Int
	for _, p := range rocaPrimes() {
		prime.SetUint64(p)
		if !powerOf65537(remainder.Mod(n, &prime).Uint64(), p) {
			return false
		}
	}
	return true
}

// powerOf65537 reports whether r is a power of 65537 modulo p.
func powerOf65537(r, p uint64) bool {
	for x, first := uint64(1), true; first || x != 1; x, first = x*65537%p, false {
		if x == r {
			return true
		}
	}
	return false
}
