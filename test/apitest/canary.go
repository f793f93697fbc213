package apitest

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// WantNo fails where a text of places has one of the secrets, as it is or in another form.
func WantNo(t *testing.T, secrets []string, places map[string]string) {
	t.Helper()
	for _, secret := range secrets {
		for how, text := range forms(secret) {
			for place, all := range places {
				if at := strings.Index(all, text); at >= 0 {
					t.Errorf("%s has %s…, %s: …%s", place, secret[:min(10, len(secret))], how, all[max(0, at-60):at])
				}
			}
		}
	}
}

// forms are how a secret may stand in a text.
func forms(v string) map[string]string {
	plain := hex.EncodeToString([]byte(v))
	forms := map[string]string{"plain": v, "in hex": plain, "in capital hex": strings.ToUpper(plain)}
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("-", before) + v))
		forms[fmt.Sprint("in base64 after ", before)] = text[2*before : len(text)-3]
	}
	return forms
}
