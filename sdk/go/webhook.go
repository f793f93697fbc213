package flowlane

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrSignature says that a message is not what its sender signed, is more than five minutes old or ahead, or lacks a
// header.
var ErrSignature = errors.New("signature verification failed")

const tolerance = 5 * time.Minute

// SignWebhook sets the headers with which a webhook takes a message, as Standard Webhooks says. Send exactly this body;
// a message that is sent again keeps its id, which is made where it is empty.
func SignWebhook(header http.Header, secret, id string, at time.Time, body []byte) error {
	if id == "" {
		id = "msg_" + rand.Text()
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	mac, err := signature(secret, id, timestamp, body)
	if err != nil {
		return err
	}
	header.Set("Webhook-Id", id)
	header.Set("Webhook-Timestamp", timestamp)
	header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac))
	return nil
}

// VerifyWebhook returns ErrSignature unless one of the signatures is of this body, as it came.
func VerifyWebhook(header http.Header, secret string, now time.Time, body []byte) error {
	id, timestamp := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return ErrSignature
	}
	want, err := signature(secret, id, timestamp, body)
	if err != nil {
		return err
	}
	for one := range strings.FieldsSeq(header.Get("Webhook-Signature")) {
		text, ok := strings.CutPrefix(one, "v1,")
		if got, err := base64.StdEncoding.DecodeString(text); ok && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return ErrSignature
}

func signature(secret, id, timestamp string, body []byte) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return nil, fmt.Errorf("%w: the secret is not whsec_ and base64", ErrSignature)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil), nil
}
