package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// tolerance is how far a delivery's timestamp may lie from the receiver's clock, on both sides.
const tolerance = 5 * time.Minute

const (
	secretPrefix = "whsec_"
	secretBytes  = 32
	// scheme is the only one that is taken: HMAC-SHA256. A header may list others beside it (v1a is asymmetric).
	scheme = "v1,"
	// macLength is that of an HMAC-SHA256 in base64.
	macLength = 44
	// Bounds of what a stranger's headers may hold.
	maxID        = 256
	maxTimestamp = 12
	maxSignature = 4096
)

// ErrSignature is the one answer of Verify to everything that is wrong, so that nobody learns what it was.
var ErrSignature = errors.New("signature verification failed")

var errSecret = errors.New("a signing secret is whsec_ and then its bytes in base64")

// NewSecret makes a signing secret: whsec_ and 32 random bytes in base64.
func NewSecret() (string, error) {
	key := make([]byte, secretBytes)
	if _, err := rand.Read(key); err != nil {
		return "", fmt.Errorf("make a signing secret: %w", err)
	}
	return secretPrefix + base64.StdEncoding.EncodeToString(key), nil
}

// Sign returns the value of webhook-signature for a delivery: v1, and the base64 of its HMAC-SHA256. It fails where the
// secret is none, and where the id is none that Verify would take.
func Sign(secret, id string, at time.Time, body []byte) (string, error) {
	key, err := keyOf(secret)
	if err != nil {
		return "", err
	}
	if !validID(id) {
		return "", fmt.Errorf("an id is 1 to %d visible ASCII characters without a full stop", maxID)
	}
	return scheme + mac(key, id, strconv.FormatInt(at.Unix(), 10), body), nil
}

// Verify checks the headers webhook-id, webhook-timestamp and webhook-signature of a delivery against its raw body. Any
// secret may have made any of the listed signatures; all of them are compared, so that the time does not tell which one
// fits. An id has no full stop: it separates what is signed, and a part of the id could pass for the timestamp. The
// only error is ErrSignature.
func Verify(secrets []string, id, timestamp, signature string, body []byte, now time.Time) error {
	if !plausible(id, timestamp, signature, now) {
		return ErrSignature
	}
	found := 0
	for _, secret := range secrets {
		key, err := keyOf(secret)
		if err != nil {
			continue // a secret that is none has signed nothing
		}
		want := []byte(mac(key, id, timestamp, body))
		for listed := range strings.SplitSeq(signature, " ") {
			if text, ok := strings.CutPrefix(listed, scheme); ok {
				// As text, since base64 has several spellings of the same bytes.
				found |= subtle.ConstantTimeCompare([]byte(text), want)
			}
		}
	}
	if found == 0 {
		return ErrSignature
	}
	return nil
}

// plausible tells whether a delivery with these headers may verify, whatever its body and the secrets are.
func plausible(id, timestamp, signature string, now time.Time) bool {
	return validID(id) && within(timestamp, now) && len(signature) <= maxSignature && lists(signature)
}

// lists tells whether one of the signatures has the form of ours.
func lists(signature string) bool {
	for listed := range strings.SplitSeq(signature, " ") {
		if len(listed) == len(scheme)+macLength && strings.HasPrefix(listed, scheme) {
			return true
		}
	}
	return false
}

// mac signs what a delivery is: id, timestamp and body, with full stops between them.
func mac(key []byte, id, timestamp string, body []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// keyOf returns the bytes of a secret; never none, with which anybody could sign.
func keyOf(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(key) == 0 {
		return nil, errSecret // not the cause, which shows a part of the secret
	}
	return key, nil
}

func validID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' || id[i] == '.' {
			return false
		}
	}
	return true
}

// within tells whether a timestamp, seconds since 1970 in digits, is near enough to a clock.
func within(timestamp string, now time.Time) bool {
	if timestamp == "" || len(timestamp) > maxTimestamp || strings.Trim(timestamp, "0123456789") != "" {
		return false
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return false
	}
	tolerance := int64(tolerance / time.Second)
	return seconds >= now.Unix()-tolerance && seconds <= now.Unix()+tolerance
}
