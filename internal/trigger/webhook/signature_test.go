package webhook_test

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"flowlane/internal/trigger/webhook"
)

// The vector of the Standard Webhooks suites.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTimestamp = "1614265330"
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

var vectorTime = time.Unix(1614265330, 0)

func secret(t *testing.T) string {
	t.Helper()
	s, err := webhook.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sign(t *testing.T, secret, id string, at time.Time, body string) string {
	t.Helper()
	s, err := webhook.Sign(secret, id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSign_Vector(t *testing.T) {
	t.Parallel()
	if got := sign(t, vectorSecret, vectorID, vectorTime, vectorBody); got != vectorSignature {
		t.Errorf("the vector is signed %s", got)
	}
	if err := webhook.Verify([]string{vectorSecret}, vectorID, vectorTimestamp, vectorSignature, []byte(vectorBody),
		vectorTime); err != nil {
		t.Errorf("the vector: %v", err)
	}
}

func TestNewSecret(t *testing.T) {
	t.Parallel()
	a, b := secret(t), secret(t)
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(a, "whsec_"))
	if a == b || !strings.HasPrefix(a, "whsec_") || err != nil || len(key) != 32 {
		t.Errorf("a secret of %d bytes, %v; twice the same: %t", len(key), err, a == b)
	}
}

func TestVerify_Header(t *testing.T) {
	t.Parallel()
	now := vectorTime
	current, previous := secret(t), secret(t)
	of := func(secret string) string { return sign(t, secret, "m1", now, "body") }
	both := []string{current, previous}
	for name, c := range map[string]struct {
		secrets   []string
		signature string
		good      bool
	}{
		"Current":                {both, of(current), true},
		"Previous":               {both, of(previous), true},
		"OnlyCurrentIsLeft":      {both[:1], of(previous), false},
		"LastOfSeveral":          {both, "v1a,xyz v1,AAAA " + of(secret(t)) + " " + of(current), true},
		"FirstOfSeveral":         {both, of(current) + " v1,", true},
		"TwoSpaces":              {both, "  " + of(current) + "  ", true},
		"OtherScheme":            {both, "v1a," + strings.TrimPrefix(of(current), "v1,"), false},
		"NoScheme":               {both, strings.TrimPrefix(of(current), "v1,"), false},
		"UpperCaseScheme":        {both, strings.Replace(of(current), "v1", "V1", 1), false},
		"CommaInsteadOfSpace":    {both, "v1,AAAA," + of(current), false},
		"NoPadding":              {both, strings.TrimSuffix(of(current), "="), false},
		"Empty":                  {both, "", false},
		"EmptyOfScheme":          {both, "v1,", false},
		"Beyond4096Bytes":        {both, strings.Repeat("v1,A ", 1000) + of(current), false},
		"NoSecret":               {nil, of(current), false},
		"SecretWithoutBytes":     {[]string{"whsec_", ""}, of(current), false},
		"SecretThatIsNoneBeside": {[]string{"whsec_?", current}, of(current), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := webhook.Verify(c.secrets, "m1", vectorTimestamp, c.signature, []byte("body"), now)
			if c.good != (err == nil) || err != nil && err != webhook.ErrSignature { //nolint:errorlint // the very value
				t.Errorf("%q: %v", c.signature, err)
			}
		})
	}
}

func TestVerify_Time(t *testing.T) {
	t.Parallel()
	s := secret(t)
	for offset, good := range map[int64]bool{-301: false, -300: true, 0: true, 300: true, 301: false, -1 << 40: false,
		1 << 40: false} {
		at := vectorTime.Add(time.Duration(offset) * time.Second)
		if offset == 1<<40 || offset == -1<<40 {
			at = time.Unix(offset, 0)
		}
		err := webhook.Verify([]string{s}, "m1", strconv.FormatInt(at.Unix(), 10), sign(t, s, "m1", at, ""), nil,
			vectorTime)
		if good != (err == nil) || err != nil && !errors.Is(err, webhook.ErrSignature) {
			t.Errorf("%d s from the clock: %v", offset, err)
		}
	}
}

// TestVerify_Malformed signs each header as it is, so that only its form can be what is wrong.
func TestVerify_Malformed(t *testing.T) {
	t.Parallel()
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(vectorSecret, "whsec_"))
	for _, c := range []struct {
		id, timestamp string
		good          bool
	}{
		{"m", vectorTimestamp, true}, {strings.Repeat("m", 256), vectorTimestamp, true}, {"!~,/=", vectorTimestamp,
			true},
		{"", vectorTimestamp, false}, {strings.Repeat("m", 257), vectorTimestamp, false}, {"m.1", vectorTimestamp,
			false},
		{"m 1", vectorTimestamp, false}, {"m\x00", vectorTimestamp, false}, {"é", vectorTimestamp, false},
		{"m\x7f", vectorTimestamp, false},
		{"m", "", false}, {"m", "+" + vectorTimestamp, false}, {"m", vectorTimestamp + ".0", false},
		{"m", " " + vectorTimestamp, false},
		{"m", "1614265330000", false}, {"m", "99999999999999999999999999", false}, {"m", "٣", false},
		{"m", "0x60380000", false},
		{"m", "-" + vectorTimestamp, false},
	} {
		signature := "v1," + webhook.Mac(key, c.id, c.timestamp, []byte("body"))
		err := webhook.Verify([]string{vectorSecret}, c.id, c.timestamp, signature, []byte("body"), vectorTime)
		if c.good != (err == nil) || err != nil && err != webhook.ErrSignature { //nolint:errorlint // the very value
			t.Errorf("id %q, timestamp %q: %v", c.id, c.timestamp, err)
		}
	}
}

// TestVerify_FullStop: what is signed for one delivery cannot be cut into another one.
func TestVerify_FullStop(t *testing.T) {
	t.Parallel()
	s := secret(t)
	signature := sign(t, s, "m", vectorTime, vectorTimestamp+".body")
	if err := webhook.Verify([]string{s}, "m."+vectorTimestamp, vectorTimestamp, signature, []byte("body"),
		vectorTime); err == nil {
		t.Error("a part of the body passes for the timestamp")
	}
}

// TestVerify_FlippedByte changes every byte of a delivery, one at a time, in each of its bits.
func TestVerify_FlippedByte(t *testing.T) {
	t.Parallel()
	good := [...]string{vectorID, vectorTimestamp, vectorSignature, vectorBody}
	for part := range good {
		for at := range good[part] {
			for bit := range 8 {
				d := good
				text := []byte(d[part])
				text[at] ^= 1 << bit
				d[part] = string(text)
				err := webhook.Verify([]string{vectorSecret}, d[0], d[1], d[2], []byte(d[3]), vectorTime)
				if err != webhook.ErrSignature { //nolint:errorlint // the very value
					t.Errorf("%q: %v", d, err)
				}
			}
		}
	}
}

func TestSign_Refuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "whsec_", "whsec_not base64", "MfKQ9r8GKYq"} {
		if _, err := webhook.Sign(s, "m", vectorTime, nil); err == nil || s != "" && s != "whsec_" &&
			strings.Contains(err.Error(), s) {
			t.Errorf("secret %q: %v", s, err)
		}
	}
	for _, id := range []string{"", "a.b", "a b", "é", strings.Repeat("m", 257)} {
		if _, err := webhook.Sign(vectorSecret, id, vectorTime, nil); err == nil {
			t.Errorf("id %q is signed", id)
		}
	}
}
