package api

import (
	"flowlane/gen/oas"
	"flowlane/internal/fault"
	"flowlane/internal/pacing"
)

// policyOf reads a pacing policy of a body, with what is wrong with it.
func policyOf(p *oas.Pacing) (out *pacing.Policy, bad []fault.Field) {
	out = &pacing.Policy{Records: int64(p.RecordsPerPeriod), PeriodMinutes: p.PeriodMinutes}
	if w, ok := p.Window.Get(); ok {
		out.Window = &pacing.Hours{Timezone: w.Timezone, Start: w.StartMinuteOfDay, End: w.EndMinuteOfDay}
		for _, day := range w.Days {
			out.Window.Days = append(out.Window.Days, string(day))
		}
	}
	for _, m := range out.Check() {
		bad = append(bad, fault.Field{Loc: append([]string{"body", "pacing"}, m.Loc...), Msg: m.Msg,
			Type: "value_error"})
	}
	return out, bad
}

// pacingOf shows a policy; null for none.
func pacingOf(p *pacing.Policy) oas.NilPacing {
	if p == nil {
		return oas.NilPacing{Null: true}
	}
	out := oas.Pacing{RecordsPerPeriod: int(p.Records), PeriodMinutes: p.PeriodMinutes}
	if w := p.Window; w != nil {
		window := oas.DeliveryWindow{Timezone: w.Timezone, StartMinuteOfDay: w.Start, EndMinuteOfDay: w.End}
		for _, day := range w.Days {
			window.Days = append(window.Days, oas.DeliveryWindowDaysItem(day))
		}
		out.Window = oas.NewOptDeliveryWindow(window)
	}
	return oas.NewNilPacing(out)
}
