package api

import (
	"strconv"

	"flowlane/gen/oas"
	"flowlane/internal/platform/catalog"
)

func convertPlatform(p *catalog.Platform) oas.Platform {
	return oas.Platform{
		ID: p.ID, Name: p.Name, Description: p.Description, DocsURL: p.DocsURL, Status: oas.PlatformStatus(p.Status),
	}
}

func convertService(s *catalog.Service) oas.Service {
	auths := []oas.ServiceAuth{}
	for _, a := range s.Auths() {
		auths = append(auths, oas.ServiceAuth{
			AuthMethod: oas.AuthMethod(a.Method), CredentialFields: convertFields(a.Fields),
			GrantType: oas.NilString{Value: a.Grant, Null: a.Grant == ""},
		})
	}
	buckets := make(oas.ServiceRateBuckets, len(s.RateBuckets))
	for name, b := range s.RateBuckets {
		buckets[name] = convertRateBucket(b)
	}
	return oas.Service{
		ID: s.ID, PlatformID: s.PlatformID, Name: s.Name, Kind: oas.ServiceKind(s.Kind),
		Protocol: oas.ServiceProtocol(s.Protocol), AuthMethod: oas.ServiceAuthMethod(s.AuthMethod), BaseURL: s.BaseURL,
		DocsURL: s.DocsURL, CredentialFields: convertFields(s.CredentialFields), AuthMethods: auths,
		RequiresConnection: s.RequiresConnection, Status: s.Status,
		RateBuckets: buckets,
	}
}

func convertFields(of []catalog.CredentialField) []oas.CredentialField {
	fields := make([]oas.CredentialField, len(of))
	for i, f := range of {
		fields[i] = oas.CredentialField{Name: f.Name, Label: f.Label, Type: f.Type, Required: f.Required,
			Secret: f.Secret}
	}
	return fields
}

func convertRateBucket(b *catalog.RateBucket) oas.RateBucket {
	lanes := make(oas.RateBucketDefaultLaneByAction, len(b.DefaultLaneByAction))
	for action, lane := range b.DefaultLaneByAction {
		lanes[action] = oas.Lane(lane)
	}
	windows := make(oas.RateBucketWindows, len(b.Windows))
	for seconds, limit := range b.Windows {
		windows[strconv.Itoa(seconds)] = limit
	}
	further := make([]oas.RateBucketFurtherWindowsItem, len(b.Further))
	for i, w := range b.Further {
		further[i] = oas.RateBucketFurtherWindowsItem{Seconds: w.Seconds, Calls: w.Calls,
			Kind: oas.RateBucketFurtherWindowsItemKind(w.Kind)}
	}
	return oas.RateBucket{
		FurtherWindows: further, MaxInFlight: oas.NilInt{Value: b.MaxInFlight, Null: b.MaxInFlight == 0},
		Label: b.Label, DefaultLane: oas.Lane(b.DefaultLane), DefaultLaneByAction: lanes,
		MaxRecordsPerRequest: b.MaxRecordsPerRequest, MemberActionIds: orEmpty(b.MemberActionIDs), Windows: windows,
	}
}

func convertAction(a *catalog.Action) oas.Action {
	out := oas.Action{
		ID: a.ID, ServiceID: a.ServiceID, Name: a.Name, Description: a.Description,
		ParamsSchema: oas.FreeObject(a.ParamsSchema), OutputSchema: oas.FreeObject(a.OutputSchema),
		Buckets: orEmpty(a.Buckets), DefaultLane: oas.Lane(a.DefaultLane), MaxRecordsPerRequest: max(1,
			a.MaxRecordsPerRequest),
		MaxBytesPerRequest: oas.NilInt{Null: true}, Bulk: a.Bulk, OutcomeCheck: oas.ActionOutcomeCheck(a.OutcomeCheck),
		Deprecated: a.Deprecated,
	}
	if a.MaxBytesPerRequest > 0 {
		out.MaxBytesPerRequest = oas.NewNilInt(a.MaxBytesPerRequest)
	}
	return out
}

// orEmpty keeps an absent list from being written as null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
