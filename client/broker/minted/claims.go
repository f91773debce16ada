package minted

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"time"
)

// notBefore returns when a token begins to be valid, as it says itself (RFC 7519,
// section 4.1.5), and the zero time when it does not say so or is no JWT. The claim is
// not verified: it can only make the broker reject the token.
func notBefore(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		NotBefore float64 `json:"nbf"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.NotBefore <= 0 || claims.NotBefore > math.MaxInt32*2 {
		return time.Time{}
	}
	return time.Unix(int64(claims.NotBefore), 0)
}
