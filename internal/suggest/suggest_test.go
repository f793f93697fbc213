package suggest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"flowlane/internal/suggest"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	actions := []string{"core__http__request", "hubspot__crm__create_contact", "hubspot__crm__create_contacts_batch",
		"dialer__api__upload"}
	for _, tt := range []struct {
		name  string
		known []string
		want  string
	}{
		{"staus", []string{"state", "status"}, "status"},
		{"sttaus", []string{"state", "status"}, "status"},
		{"STATUS", []string{"status"}, "status"},
		{"id", []string{"url"}, ""},
		{"x", []string{"y"}, "y"},
		{"color", []string{"status"}, ""},
		{"core__htp__request", actions, "core__http__request"},
		{"hubspot__create_contact", actions, "hubspot__crm__create_contact"},
		{"upload", actions, ""},
		{"salesforce__crm__create_lead", actions, ""},
		{strings.Repeat("x", 200), []string{strings.Repeat("x", 200)}, ""},
		{"", []string{"a", ""}, ""},
		{"anything", nil, ""},
	} {
		assert.Equal(t, tt.want, suggest.Nearest(tt.name, tt.known), "%.40s", tt.name)
	}
	assert.Equal(t, `; did you mean "status"?`, suggest.DidYouMean("staus", []string{"status"}))
	assert.Empty(t, suggest.DidYouMean("staus", nil))
}
