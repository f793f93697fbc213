package openapi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Account says how a platform tells whose a secret is: by a GET of Path, in the field Number of the answer.
type Account struct{ Path, Number string }

// ParseAccount reads what people write: /api/accounts=data.0.id.
func ParseAccount(s string) (Account, error) {
	path, number, ok := strings.Cut(s, "=")
	if !ok || !strings.HasPrefix(path, "/") || number == "" {
		return Account{}, fmt.Errorf("the account %q must be a path and the field of its answer with the account's "+
			"number, such as /api/accounts=data.0.id", s)
	}
	return Account{path, number}, nil
}

// node is the account block of a platform. Zones are of no weight: the windows of imports roll.
func (a Account) node() *node {
	return object("time_zone", text("UTC"), "whoami", object("path", text(a.Path), "account_number", text(a.Number)))
}

var (
	limitName = regexp.MustCompile(`^x-.*rate-?limits?$`)
	limitForm = regexp.MustCompile(`^([1-9][0-9]{0,8})/(s|m|h|d)$`)
	limitUnit = map[string]int{"s": 1, "m": 60, "h": 3600, "d": 86400}
)

// limits reads the extension with which some vendors say how often an operation may be called, such as
// x-vendor-ratelimit: {burst: 10/s, steady: 150/m}. The answer is the bucket of the action, nil for none; how the
// provider counts is not said, so the windows roll, which is within all other ways. read names what was understood.
func (im *importer) limits(op place) (bucket *node, read string) {
	for _, f := range op.children() {
		name := lastStep(op, f)
		if !limitName.MatchString(strings.ToLower(name)) {
			continue
		}
		windows := windowsOf(f)
		switch {
		case windows == nil:
			return nil, ""
		case im.owned:
			im.report.add(Dropped, f, "limits belong to an account; PUT /v1/credentials/{credential_id}/limits sets "+
				"those of a credential, or of its account")
			return nil, name
		case im.account == Account{}:
			im.report.add(Dropped, f,
				"limits belong to an account; flowlane catalog import openapi --account says how one is told")
			return nil, name
		}
		return object("default_lane", text("interactive"), "further_windows", windows), name
	}
	return nil, ""
}

// windowsOf are the windows that an object of limits names, the shortest first; nil where one of them cannot be read.
func windowsOf(limits place) *node {
	calls := map[int]int{}
	for _, f := range limits.children() {
		m := limitForm.FindStringSubmatch(f.str())
		if m == nil {
			return nil
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return nil
		}
		seconds := limitUnit[m[2]]
		if old, twice := calls[seconds]; !twice || n < old {
			calls[seconds] = n
		}
	}
	var out *node
	for _, seconds := range []int{1, 60, 3600, 86400} {
		if n, ok := calls[seconds]; ok {
			if out == nil {
				out = list()
			}
			out.set("", object("seconds", number(seconds), "calls", number(n), "kind", text("rolling")))
		}
	}
	return out
}

// spend gives an action a bucket of its own.
func (im *importer) spend(s *service, id, name string, bucket, action *node) {
	slug := unique(im.bucketNames, id[strings.LastIndex(id, "__")+2:])
	s.buckets.set(slug, &node{kind: isObject, fields: slices.Concat([]field{{"label", text(clip(name, 200))}},
		bucket.fields)})
	action.set("buckets", list(text(slug)))
}
