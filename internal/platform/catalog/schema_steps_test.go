package catalog

import (
	"fmt"
	"strings"
	"testing"
)

// doubling is a schema of forty parts of which each leads to the next one twice, as what the form says.
func doubling(form string) string {
	var parts strings.Builder
	for i := range 40 {
		next := fmt.Sprintf(`{"$ref":"#/$defs/s%d"}`, i+1)
		fmt.Fprintf(&parts, `"s%d":%s,`, i, strings.ReplaceAll(form, "NEXT", next))
	}
	return `{"$ref":"#/$defs/s0","$defs":{` + parts.String() + `"s40":{}}}`
}

// few is a schema of ten parts of which each leads to the next one twice, and the last one to this.
func few(form, last string) string {
	var parts strings.Builder
	for i := range 10 {
		fmt.Fprintf(&parts, `"s%d":%s,`, i, strings.ReplaceAll(form, "NEXT", fmt.Sprintf(`{"$ref":"#/$defs/s%d"}`, i+1)))
	}
	return `{"$ref":"#/$defs/s0","$defs":{` + parts.String() + `"s10":` + last + `}}`
}

// chain is a schema of so many parts of which each leads to the next one.
func chain(n int) string {
	var parts strings.Builder
	for i := range n {
		fmt.Fprintf(&parts, `"s%d":{"$ref":"#/$defs/s%d"},`, i, i+1)
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/s0","$defs":{%s"s%d":{}}}`, parts.String(), n)
}

// TestValidateParams_Steps: schemas that would keep the validator busy for ever are told from those that only look so.
func TestValidateParams_Steps(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "{}" + strings.Repeat("}", n) }
	many := "[" + strings.TrimSuffix(strings.Repeat("1,", 200_000), ",") + "]"
	const twiceBelow = `{"properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`
	names := `"n"`
	for i := range 1000 {
		names += fmt.Sprintf(`,"name%d"`, i)
	}
	text := `"` + strings.Repeat("a", 1<<20) + `"`
	for name, c := range map[string]struct {
		schema, value string
		fits          bool
	}{
		"all of":    {doubling(`{"allOf":[NEXT,NEXT]}`), `{}`, false},
		"any of":    {doubling(`{"anyOf":[NEXT,NEXT]}`), `{}`, false},
		"one of":    {doubling(`{"oneOf":[NEXT,NEXT]}`), `1`, false},
		"not":       {doubling(`{"not":NEXT,"if":NEXT}`), `1`, false},
		"cases":     {doubling(`{"then":NEXT,"else":NEXT,"if":{"type":"integer"}}`), `1`, false},
		"dependent": {doubling(`{"dependentSchemas":{"a":NEXT,"b":NEXT}}`), `{"a":1,"b":2}`, false},
		"below":     {twiceBelow, deep(60), false},
		"items below": {strings.ReplaceAll(twiceBelow, `"properties":{"a":`, `"additionalProperties":{"items":`),
			strings.Repeat(`{"a":[`, 60) + strings.Repeat(`]}`, 60), false},
		"dependencies":  {doubling(`{"dependencies":{"a":NEXT,"b":NEXT}}`), `{"a":1,"b":2}`, false},
		"many required": {few(`{"allOf":[NEXT,NEXT]}`, `{"required":[`+names+`]}`), `{}`, false},
		"long pattern":  {few(`{"allOf":[NEXT,NEXT]}`, `{"pattern":"a+b"}`), text, false},
		"long text":     {few(`{"allOf":[NEXT,NEXT]}`, `{"minLength":1}`), text, false},
		"large enum":    {few(`{"allOf":[NEXT,NEXT]}`, `{"enum":[`+names+`]}`), `"x"`, false},
		"unique items":  {few(`{"allOf":[NEXT,NEXT]}`, `{"uniqueItems":true}`), many, false},
		"deep for all":  {chain(2000), `{}`, false},
		"deep stack": {strings.Replace(chain(300), `"s300":{}`, `"s300":{"properties":{"a":{"$ref":"#/$defs/s0"}}}`, 1),
			deep(200), false},
		"long chain":      {chain(900), `{}`, true},
		"back to itself":  {`{"$defs":{"base":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/dog"}]},"dog":{"allOf":[{"$ref":"#/$defs/base"}]}},"$ref":"#/$defs/base"}`, `null`, true},
		"a little below":  {twiceBelow, deep(6), true},
		"chain":           {doubling(`{"allOf":[NEXT]}`), `{}`, true},
		"apart":           {doubling(`{"properties":{"a":NEXT,"b":NEXT}}`), `{"a":{},"b":{"a":1}}`, true},
		"many items":      {`{"items":{"allOf":[{"type":"integer"}],"minimum":1}}`, many, true},
		"items that fail": {`{"items":{"allOf":[{"type":"string"}]}}`, `[1]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compiled, err := compileSchema(JSON(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			a := Action{params: compiled}
			bad := a.ValidateParams([]byte(c.value), false)
			if len(bad) == 0 != c.fits {
				t.Errorf("the problems are %v", bad)
			}
			if says := len(bad) > 0 && bad[0].Message == tooManySteps; says == (name == "items that fail" || c.fits) {
				t.Errorf("the problems are %v", bad)
			}
		})
	}
}
